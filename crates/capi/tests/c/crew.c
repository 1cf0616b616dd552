/* What the header promises of a crew, one function for each promise; C11 and C++17. */
#include "promise.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/wait.h>

static plimsoll_crew *start_crew(uint32_t threads) {
  plimsoll_crew_options options;
  plimsoll_crew *crew = NULL;
  memset(&options, 0, sizeof options);
  options.struct_bytes = sizeof options;
  options.threads = threads;
  OK(plimsoll_crew_start(&options, &crew, &error));
  return crew;
}

static plimsoll_log *open_numbered(plimsoll_crew *crew, const char *dir, int number) {
  plimsoll_options options = options_of(PLIMSOLL_POLICY_INTERVAL);
  plimsoll_log *log = NULL;
  plimsoll_error mine; /* any thread may open one */
  char path[4096];
  snprintf(path, sizeof path, "%s/log-%d", dir, number);
  CHECK(plimsoll_crew_open_log(crew, path, &options, &log, NULL, &mine) == PLIMSOLL_OK);
  return log;
}

/* Threads of this process; 0 where nobody says. */
static int threads(void) {
  DIR *tasks = opendir("/proc/self/task");
  int count = 0;
  if (tasks == NULL) return 0;
  while (readdir(tasks) != NULL) count++;
  closedir(tasks);
  return count - 2; /* . and .. */
}

/* One that has ended is seen for a moment longer. */
static void wait_for_threads(int count) {
  while (threads() != count) usleep(100); /* the alarm ends it */
}

static void append_three(plimsoll_log *log) {
  char bytes[600];
  for (uint64_t number = 1; number <= 3; number++) {
    plimsoll_ack ack = number == 3 ? PLIMSOLL_ACK_DURABLE : PLIMSOLL_ACK_POLICY;
    OK(plimsoll_append(log, bytes, payload(number, bytes), ack, NULL, &error));
  }
}

static void logs_of_a_crew_share_its_threads(const char *dir) {
  const int alone = threads();
  plimsoll_crew *crew = start_crew(2);
  plimsoll_log *logs[20];
  for (int number = 0; number < 20; number++) logs[number] = open_numbered(crew, dir, number);
  for (int number = 0; number < 20; number++) append_three(logs[number]);
  if (alone > 0) wait_for_threads(alone + 2);
  for (int number = 0; number < 20; number++) end_log(logs[number]);
  if (alone > 0) wait_for_threads(alone + 2); /* the crew is still there */
  plimsoll_crew_free(crew);
  wait_for_threads(alone);
}

static void a_log_of_a_crew_is_a_log_like_any_other(const char *dir) {
  plimsoll_crew *crew = start_crew(0);
  plimsoll_options options = options_of(PLIMSOLL_POLICY_ALWAYS);
  plimsoll_recovery recovery;
  plimsoll_log *log = NULL, *second = NULL;
  char bytes[600];
  memset(&recovery, 0, sizeof recovery);
  recovery.struct_bytes = sizeof recovery;
  options.first_index = 1000;
  OK(plimsoll_crew_open_log(crew, dir, &options, &log, &recovery, &error));
  CHECK(recovery.created && recovery.first_index == 1000);
  CHECK(plimsoll_crew_open_log(crew, dir, &options, &second, NULL, &error) == PLIMSOLL_LOCKED);
  CHECK(plimsoll_open(dir, NULL, &second, NULL, &error) == PLIMSOLL_LOCKED && second == NULL);
  for (uint64_t number = 1000; number < 1100; number++) {
    OK(plimsoll_append(log, bytes, payload(number, bytes), PLIMSOLL_ACK_POLICY, NULL, &error));
    CHECK(marks_of(log).durable >= number); /* by its own policy */
  }
  end_log(log);
  log = open_log(dir, PLIMSOLL_POLICY_INTERVAL);
  CHECK(marks_of(log).last_index == 1099 && read_through(log, 1000) == 100);
  end_log(log);
  OK(plimsoll_crew_open_log(crew, dir, NULL, &log, &recovery, &error));
  CHECK(!recovery.created && recovery.clean && recovery.last_index == 1099);
  CHECK(read_through(log, 1000) == 100);
  end_log(log);
  plimsoll_crew_free(crew);
}

static void threads_of_a_crew_end_with_the_last_of_its_logs(const char *dir) {
  const int alone = threads();
  plimsoll_crew *crew = start_crew(3);
  plimsoll_log *first = open_numbered(crew, dir, 1), *last = open_numbered(crew, dir, 2);
  plimsoll_crew_free(crew);
  append_three(first);
  append_three(last);
  end_log(first);
  if (alone > 0) wait_for_threads(alone + 3);
  append_three(last);
  plimsoll_free(last); /* and nobody closed it */
  wait_for_threads(alone);
  last = open_log(dir, PLIMSOLL_POLICY_INTERVAL);
  end_log(last);
}

static void no_record_is_larger_than_what_the_crew_has(const char *dir) {
  plimsoll_crew_options options;
  plimsoll_crew *crew = NULL;
  plimsoll_stats stats;
  static char bytes[2 << 20];
  memset(&options, 0, sizeof options);
  options.struct_bytes = sizeof options;
  options.ring_bytes = 1 << 20;
  OK(plimsoll_crew_start(&options, &crew, &error));
  plimsoll_log *log = open_numbered(crew, dir, 1);
  plimsoll_code code =
      plimsoll_append(log, bytes, sizeof bytes, PLIMSOLL_ACK_POLICY, NULL, &error);
  CHECK(code == PLIMSOLL_TOO_LARGE && marks_of(log).last_index == 0);
  memset(&stats, 0, sizeof stats);
  stats.struct_bytes = sizeof stats;
  OK(plimsoll_log_stats(log, &stats, &error));
  CHECK(stats.max_record_bytes >= 1 << 19 && stats.max_record_bytes < sizeof bytes);
  size_t most = (size_t)stats.max_record_bytes;
  OK(plimsoll_append(log, bytes, most, PLIMSOLL_ACK_DURABLE, NULL, &error));
  end_log(log);
  plimsoll_crew_free(crew);
}

struct tenant {
  plimsoll_crew *crew;
  const char *dir;
  int number;
};

static void *open_append_and_close(void *argument) {
  struct tenant *mine = (struct tenant *)argument;
  for (int round = 0; round < 5; round++) {
    plimsoll_log *log = open_numbered(mine->crew, mine->dir, mine->number);
    for (int record = 0; record < 20; record++) {
      plimsoll_ack ack = record % 8 == 7 ? PLIMSOLL_ACK_DURABLE : PLIMSOLL_ACK_BUFFERED;
      CHECK(plimsoll_append(log, &record, sizeof record, ack, NULL, NULL) == PLIMSOLL_OK);
    }
    if (round % 2 == 0) CHECK(plimsoll_close(log, NULL) == PLIMSOLL_OK);
    plimsoll_free(log);
  }
  return NULL;
}

static void many_threads_open_and_close_logs_of_one_crew(const char *dir) {
  plimsoll_crew *crew = start_crew(2);
  struct tenant tenants[8];
  pthread_t workers[8];
  for (int number = 0; number < 8; number++) {
    tenants[number].crew = crew;
    tenants[number].dir = dir;
    tenants[number].number = number;
    pthread_create(&workers[number], NULL, open_append_and_close, &tenants[number]);
  }
  for (int number = 0; number < 8; number++) pthread_join(workers[number], NULL);
  for (int number = 0; number < 8; number++) {
    plimsoll_log *log = open_numbered(crew, dir, number);
    CHECK(marks_of(log).last_index == 5 * 20); /* what was freed was written first */
    end_log(log);
  }
  plimsoll_crew_free(crew);
}

static void a_crew_is_its_parents_after_a_fork(const char *dir) {
  plimsoll_crew *crew = start_crew(2);
  plimsoll_log *log = open_numbered(crew, dir, 1), *none = NULL;
  char path[4096];
  int status;
  snprintf(path, sizeof path, "%s/child", dir);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(30); /* the threads of the crew are not here: it would wait for them for ever */
    CHECK(plimsoll_crew_open_log(crew, path, NULL, &none, NULL, &error) == PLIMSOLL_INVALID);
    CHECK(none == NULL && strstr(error.text, "fork") != NULL);
    CHECK(plimsoll_append(log, "x", 1, PLIMSOLL_ACK_POLICY, NULL, &error) == PLIMSOLL_INVALID);
    plimsoll_crew_free(crew);
    plimsoll_free(log);
    plimsoll_crew *own = start_crew(1);
    plimsoll_log *mine = open_numbered(own, path, 1);
    append_three(mine);
    end_log(mine);
    plimsoll_crew_free(own);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  append_three(log);
  CHECK(read_through(log, 1) == 3);
  end_log(log);
  plimsoll_crew_free(crew);
}

static void a_crew_that_cannot_be_is_an_error(const char *dir) {
  struct {
    plimsoll_crew_options known;
    uint64_t unknown[2];
  } newer;
  plimsoll_crew *crew = NULL;
  plimsoll_log *log = NULL;
  memset(&newer, 0, sizeof newer);
  CHECK(plimsoll_crew_start(NULL, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(strcmp(error.text, "crew is NULL") == 0);
  CHECK(plimsoll_crew_start(&newer.known, &crew, &error) == PLIMSOLL_INVALID);
  CHECK(strstr(error.text, "sizeof(plimsoll_crew_options)") != NULL);
  newer.known.struct_bytes = sizeof newer;
  newer.unknown[1] = 5;
  CHECK(plimsoll_crew_start(&newer.known, &crew, &error) == PLIMSOLL_INVALID);
  newer.unknown[1] = 0;
  newer.known.reserved = 1;
  CHECK(plimsoll_crew_start(&newer.known, &crew, &error) == PLIMSOLL_INVALID);
  newer.known.reserved = 0;
  newer.known.threads = UINT32_MAX;
  CHECK(plimsoll_crew_start(&newer.known, &crew, &error) == PLIMSOLL_INVALID);
  CHECK(strstr(error.text, "threads") != NULL && crew == NULL);
  newer.known.threads = 1;
  OK(plimsoll_crew_start(&newer.known, &crew, &error));
  CHECK(plimsoll_crew_open_log(NULL, dir, NULL, &log, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(strcmp(error.text, "crew is NULL") == 0);
  CHECK(plimsoll_crew_open_log(crew, NULL, NULL, &log, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_crew_open_log(crew, dir, NULL, NULL, NULL, &error) == PLIMSOLL_INVALID);
  plimsoll_options options = options_of(9);
  CHECK(plimsoll_crew_open_log(crew, dir, &options, &log, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(log == NULL);
  plimsoll_crew_free(crew);
  plimsoll_crew_free(NULL);
  OK(plimsoll_crew_start(NULL, &crew, &error));
  plimsoll_crew_free(crew);
}

static const struct promise promises[] = {
    PROMISE(logs_of_a_crew_share_its_threads),
    PROMISE(a_log_of_a_crew_is_a_log_like_any_other),
    PROMISE(threads_of_a_crew_end_with_the_last_of_its_logs),
    PROMISE(no_record_is_larger_than_what_the_crew_has),
    PROMISE(many_threads_open_and_close_logs_of_one_crew),
    PROMISE(a_crew_is_its_parents_after_a_fork),
    PROMISE(a_crew_that_cannot_be_is_an_error),
};

int main(int argc, char **argv) {
  return keep(promises, sizeof promises / sizeof promises[0], argc, argv);
}
