/* What the header promises of a log, one function for each promise; C11 and C++17. */
#include "promise.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void what_was_appended_is_read_after_reopening(const char *dir) {
  char bytes[600];
  plimsoll_recovery recovery;
  plimsoll_options options;
  plimsoll_log *log;
  uint64_t index, last;
  memset(&recovery, 0, sizeof recovery);
  recovery.struct_bytes = sizeof recovery;
  memset(&options, 0, sizeof options);
  options.struct_bytes = sizeof options;
  options.segment_bytes = 64 << 10;
  OK(plimsoll_open(dir, &options, &log, &recovery, &error));
  CHECK(recovery.created && !recovery.torn && recovery.struct_bytes == sizeof recovery);
  for (uint64_t number = 1; number <= 1000; number++) {
    plimsoll_ack ack = number % 100 == 0 ? PLIMSOLL_ACK_DURABLE : PLIMSOLL_ACK_POLICY;
    OK(plimsoll_append(log, bytes, payload(number, bytes), ack, &index, &error));
    CHECK(index == number);
    CHECK(ack != PLIMSOLL_ACK_DURABLE || marks_of(log).durable >= index);
  }
  OK(plimsoll_sync(log, &last, &error));
  plimsoll_marks marks = marks_of(log);
  CHECK(last == 1000 && marks.first_index == 1 && marks.last_index == 1000);
  CHECK(marks.written == 1000 && marks.durable == 1000);
  CHECK(read_through(log, 1) == 1000 && read_through(log, 700) == 301);
  end_log(log);

  OK(plimsoll_open(dir, &options, &log, &recovery, &error));
  CHECK(!recovery.created && recovery.clean && !recovery.lost);
  CHECK(recovery.first_index == 1 && recovery.last_index == 1000);
  CHECK(read_through(log, 1) == 1000);
  end_log(log);
}

static void an_empty_record_is_a_record(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_ALWAYS);
  plimsoll_reader *reader;
  plimsoll_record record;
  OK(plimsoll_append(log, NULL, 0, PLIMSOLL_ACK_POLICY, NULL, NULL));
  OK(plimsoll_reader_open(log, 1, PLIMSOLL_ACK_DURABLE, &reader, &error));
  OK(plimsoll_reader_next(reader, 0, &record, &error));
  CHECK(record.index == 1 && record.len == 0 && record.bytes != NULL);
  plimsoll_reader_free(reader);
  end_log(log);
}

static void a_batch_gets_indexes_that_follow_each_other(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_INTERVAL);
  char bytes[3][600];
  plimsoll_bytes records[3];
  uint64_t first;
  for (uint64_t number = 0; number < 3; number++) {
    records[number].bytes = bytes[number];
    records[number].len = payload(number + 1, bytes[number]);
  }
  OK(plimsoll_append_batch(log, records, 3, PLIMSOLL_ACK_WRITTEN, &first, &error));
  CHECK(first == 1 && marks_of(log).written == 3);
  CHECK(read_through(log, 1) == 3);
  end_log(log);
}

static void a_wait_asks_for_the_sync_and_ends_in_time(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_NEVER);
  uint64_t index;
  OK(plimsoll_append(log, "x", 1, PLIMSOLL_ACK_BUFFERED, &index, &error));
  OK(plimsoll_wait(log, index, PLIMSOLL_ACK_WRITTEN, PLIMSOLL_FOREVER, &error));
  CHECK(marks_of(log).durable < index);
  OK(plimsoll_wait(log, index, PLIMSOLL_ACK_DURABLE, 60 * UINT64_C(1000000000), &error));
  CHECK(marks_of(log).durable == index);
  /* A disk may be quick enough once, but not always. */
  static char bytes[200000];
  plimsoll_code code = PLIMSOLL_OK;
  for (int attempt = 0; attempt < 1000 && code == PLIMSOLL_OK; attempt++) {
    OK(plimsoll_append(log, bytes, sizeof bytes, PLIMSOLL_ACK_BUFFERED, &index, &error));
    code = plimsoll_wait(log, index, PLIMSOLL_ACK_DURABLE, 0, &error);
  }
  CHECK(code == PLIMSOLL_TIMED_OUT && error.code == code && error.index == index);
  OK(plimsoll_wait(log, index, PLIMSOLL_ACK_DURABLE, PLIMSOLL_FOREVER, &error));
  plimsoll_code none = plimsoll_wait(log, index + 1, PLIMSOLL_ACK_DURABLE, PLIMSOLL_FOREVER, &error);
  CHECK(none == PLIMSOLL_OUT_OF_RANGE && error.index == index + 1);
  end_log(log);
}

/* What a call said, and how often. */
struct heard {
  pthread_mutex_t lock;
  int calls;
  plimsoll_code code;
  uint64_t index;
};
#define NOTHING_HEARD {PTHREAD_MUTEX_INITIALIZER, 0, PLIMSOLL_OTHER, 0}

static void hear(void *context, const plimsoll_error *failed) {
  struct heard *heard = (struct heard *)context;
  pthread_mutex_lock(&heard->lock);
  heard->calls++;
  heard->code = failed == NULL ? PLIMSOLL_OK : failed->code;
  heard->index = failed == NULL ? 0 : failed->index;
  pthread_mutex_unlock(&heard->lock);
}

static int calls(struct heard *heard) {
  pthread_mutex_lock(&heard->lock);
  int calls = heard->calls;
  pthread_mutex_unlock(&heard->lock);
  return calls;
}

static void wait_until_heard(struct heard *heard) {
  while (calls(heard) == 0) usleep(100); /* the alarm ends it */
}

static void a_callback_is_called_once_when_its_record_has_come(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_NEVER);
  struct heard first = NOTHING_HEARD, again = NOTHING_HEARD, none = NOTHING_HEARD;
  uint64_t index;
  for (int number = 0; number < 100; number++) {
    OK(plimsoll_append(log, "x", 1, PLIMSOLL_ACK_BUFFERED, &index, &error));
  }
  OK(plimsoll_on(log, index, PLIMSOLL_ACK_DURABLE, hear, &first, &error));
  wait_until_heard(&first); /* nobody else asks for a sync */
  CHECK(first.code == PLIMSOLL_OK && marks_of(log).durable == index);
  OK(plimsoll_on(log, index, PLIMSOLL_ACK_WRITTEN, hear, &again, &error));
  CHECK(calls(&again) == 1 && again.code == PLIMSOLL_OK); /* here and now */
  plimsoll_code code = plimsoll_on(log, index + 1, PLIMSOLL_ACK_DURABLE, hear, &none, &error);
  CHECK(code == PLIMSOLL_OUT_OF_RANGE && error.index == index + 1);
  end_log(log);
  CHECK(calls(&first) == 1 && calls(&again) == 1 && calls(&none) == 0);
}

static void a_watch_asks_for_nothing_and_is_told_all_the_same(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_NEVER);
  struct heard heard = NOTHING_HEARD, closing = NOTHING_HEARD;
  uint64_t index;
  OK(plimsoll_append(log, "x", 1, PLIMSOLL_ACK_BUFFERED, &index, &error));
  OK(plimsoll_watch(log, index, PLIMSOLL_ACK_DURABLE, hear, &heard, &error));
  OK(plimsoll_wait(log, index, PLIMSOLL_ACK_WRITTEN, PLIMSOLL_FOREVER, &error));
  usleep(50000);
  CHECK(calls(&heard) == 0 && marks_of(log).durable < index);
  OK(plimsoll_sync(log, NULL, &error));
  wait_until_heard(&heard);
  CHECK(heard.code == PLIMSOLL_OK);
  OK(plimsoll_append(log, "x", 1, PLIMSOLL_ACK_BUFFERED, &index, &error));
  OK(plimsoll_watch(log, index, PLIMSOLL_ACK_DURABLE, hear, &closing, &error));
  end_log(log);
  CHECK(calls(&closing) == 1 && closing.code == PLIMSOLL_OK); /* closing made it durable */
}

static void a_callback_is_told_why_its_record_never_comes(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_NEVER);
  struct heard cut = NOTHING_HEARD, left = NOTHING_HEARD;
  uint64_t index;
  for (int number = 1; number <= 10; number++) {
    plimsoll_ack ack = number == 5 ? PLIMSOLL_ACK_DURABLE : PLIMSOLL_ACK_BUFFERED;
    OK(plimsoll_append(log, "x", 1, ack, &index, &error));
  }
  OK(plimsoll_watch(log, 10, PLIMSOLL_ACK_DURABLE, hear, &cut, &error));
  OK(plimsoll_truncate_after(log, 5, &error));
  CHECK(calls(&cut) == 1 && cut.code == PLIMSOLL_TRUNCATED && cut.index == 10);
  OK(plimsoll_append(log, "x", 1, PLIMSOLL_ACK_WRITTEN, &index, &error));
  OK(plimsoll_watch(log, index, PLIMSOLL_ACK_DURABLE, hear, &left, &error));
  plimsoll_free(log); /* and nobody closed it */
  CHECK(calls(&left) == 1 && left.code == PLIMSOLL_CLOSED);
}

/* What it asks for would wait for itself. */
struct meddler {
  struct heard heard;
  plimsoll_log *log;
  plimsoll_code codes[4];
};

static void meddle(void *context, const plimsoll_error *failed) {
  struct meddler *mine = (struct meddler *)context;
  plimsoll_error refused;
  mine->codes[0] = plimsoll_append(mine->log, "x", 1, PLIMSOLL_ACK_DURABLE, NULL, &refused);
  mine->codes[1] = plimsoll_sync(mine->log, NULL, NULL);
  mine->codes[2] = plimsoll_close(mine->log, NULL);
  mine->codes[3] = strstr(refused.text, "callback") == NULL ? PLIMSOLL_OTHER : refused.code;
  plimsoll_free(mine->log);
  hear(&mine->heard, failed);
}

static void check_meddler(const struct meddler *meddler) {
  CHECK(meddler->heard.calls == 1 && meddler->heard.code == PLIMSOLL_OK);
  for (int each = 0; each < 4; each++) CHECK(meddler->codes[each] == PLIMSOLL_INVALID);
}

static void a_callback_that_calls_the_log_is_refused(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_NEVER);
  struct meddler later = {NOTHING_HEARD, log, {PLIMSOLL_OK}}, now = {NOTHING_HEARD, log, {PLIMSOLL_OK}};
  uint64_t index;
  OK(plimsoll_append(log, "x", 1, PLIMSOLL_ACK_BUFFERED, &index, &error));
  OK(plimsoll_on(log, index, PLIMSOLL_ACK_DURABLE, meddle, &later, &error));
  wait_until_heard(&later.heard);
  check_meddler(&later);
  OK(plimsoll_on(log, index, PLIMSOLL_ACK_DURABLE, meddle, &now, &error));
  check_meddler(&now);
  OK(plimsoll_append(log, "y", 1, PLIMSOLL_ACK_DURABLE, &index, &error)); /* and it is still there */
  CHECK(index == 2);
  end_log(log);
}

static void a_log_that_has_stopped_says_so_to_all_who_ask(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_INTERVAL);
  struct heard heard = NOTHING_HEARD;
  struct rlimit none = {4096, 4096};
  uint64_t index;
  OK(plimsoll_append(log, "x", 1, PLIMSOLL_ACK_DURABLE, &index, &error));
  OK(plimsoll_health(log, &error));
  signal(SIGXFSZ, SIG_IGN);
  CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0); /* from here on writes fail, to any file */
  plimsoll_code code = plimsoll_append(log, "x", 1, PLIMSOLL_ACK_BUFFERED, &index, &error);
  if (code == PLIMSOLL_OK) {
    code = plimsoll_on(log, index, PLIMSOLL_ACK_DURABLE, hear, &heard, &error);
    if (code == PLIMSOLL_OK) wait_until_heard(&heard);
    CHECK(code == PLIMSOLL_OK ? heard.code == PLIMSOLL_STOPPED : code == PLIMSOLL_STOPPED);
  }
  CHECK(plimsoll_health(log, &error) == PLIMSOLL_STOPPED && error.index == 1);
  CHECK(plimsoll_append(log, "x", 1, PLIMSOLL_ACK_DURABLE, &index, &error) == PLIMSOLL_STOPPED);
  CHECK(plimsoll_close(log, &error) == PLIMSOLL_STOPPED);
  CHECK(plimsoll_health(log, &error) == PLIMSOLL_CLOSED);
  plimsoll_free(log);
}

static void a_record_is_gathered_from_pieces(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_NEVER);
  static char body[100000];
  plimsoll_bytes pieces[4] = {{"head", 4}, {NULL, 0}, {body, sizeof body}, {"tail", 4}};
  plimsoll_reader *reader;
  plimsoll_record record;
  uint64_t index;
  memset(body, 'b', sizeof body);
  OK(plimsoll_append_pieces(log, pieces, 4, PLIMSOLL_ACK_DURABLE, &index, &error));
  CHECK(index == 1 && marks_of(log).durable == 1);
  OK(plimsoll_append_pieces(log, NULL, 0, PLIMSOLL_ACK_POLICY, &index, &error));
  CHECK(index == 2);
  OK(plimsoll_sync(log, NULL, &error));
  OK(plimsoll_reader_open(log, 1, PLIMSOLL_ACK_DURABLE, &reader, &error));
  OK(plimsoll_reader_next(reader, 0, &record, &error));
  const char *bytes = (const char *)record.bytes;
  CHECK(record.len == 8 + sizeof body && memcmp(bytes, "head", 4) == 0);
  CHECK(memcmp(bytes + 4, body, sizeof body) == 0 && memcmp(bytes + 4 + sizeof body, "tail", 4) == 0);
  OK(plimsoll_reader_next(reader, 0, &record, &error));
  CHECK(record.len == 0);
  plimsoll_reader_free(reader);
  /* Each of them would fit. */
  plimsoll_bytes many[200];
  for (int piece = 0; piece < 200; piece++) {
    many[piece].bytes = body;
    many[piece].len = sizeof body;
  }
  plimsoll_code code = plimsoll_append_pieces(log, many, 200, PLIMSOLL_ACK_POLICY, NULL, &error);
  CHECK(code == PLIMSOLL_TOO_LARGE && marks_of(log).last_index == 2);
  end_log(log);
}

static void a_piece_of_a_record_is_read_without_the_rest(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_NEVER);
  static char record[300000], piece[1000];
  size_t read = 7;
  for (size_t byte = 0; byte < sizeof record; byte++) record[byte] = (char)(byte * 7 / 5);
  OK(plimsoll_append(log, record, sizeof record, PLIMSOLL_ACK_WRITTEN, NULL, &error));
  OK(plimsoll_append(log, "short", 5, PLIMSOLL_ACK_WRITTEN, NULL, &error));
  OK(plimsoll_read_piece(log, 1, 123456, piece, sizeof piece, &read, &error));
  CHECK(read == sizeof piece && memcmp(piece, record + 123456, read) == 0);
  OK(plimsoll_read_piece(log, 1, sizeof record - 10, piece, sizeof piece, &read, &error));
  CHECK(read == 10 && memcmp(piece, record + sizeof record - 10, 10) == 0);
  OK(plimsoll_read_piece(log, 2, 0, piece, sizeof piece, &read, &error));
  CHECK(read == 5 && memcmp(piece, "short", 5) == 0);
  OK(plimsoll_read_piece(log, 2, UINT64_MAX, piece, sizeof piece, &read, &error));
  CHECK(read == 0);
  read = 7;
  OK(plimsoll_read_piece(log, 2, 0, NULL, 0, &read, &error));
  CHECK(read == 0);
  plimsoll_code code = plimsoll_read_piece(log, 3, 0, piece, sizeof piece, &read, &error);
  CHECK(code == PLIMSOLL_OUT_OF_RANGE && error.index == 3);
  CHECK(plimsoll_read_piece(log, 1, 0, NULL, 1, &read, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_read_piece(log, 1, 0, piece, 1, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_read_piece(NULL, 1, 0, piece, 1, &read, &error) == PLIMSOLL_INVALID);
  end_log(log);
}

static void a_log_that_is_made_begins_where_it_is_told(const char *dir) {
  plimsoll_options options;
  plimsoll_recovery recovery;
  plimsoll_log *log;
  uint64_t index;
  memset(&options, 0, sizeof options);
  options.struct_bytes = sizeof options;
  options.first_index = 1000;
  memset(&recovery, 0, sizeof recovery);
  recovery.struct_bytes = sizeof recovery;
  OK(plimsoll_open(dir, &options, &log, &recovery, &error));
  CHECK(recovery.created && recovery.first_index == 1000 && recovery.last_index == 999);
  OK(plimsoll_append(log, "x", 1, PLIMSOLL_ACK_POLICY, &index, &error));
  CHECK(index == 1000);
  end_log(log);
  options.first_index = 5;
  OK(plimsoll_open(dir, &options, &log, &recovery, &error));
  CHECK(!recovery.created && recovery.first_index == 1000 && recovery.last_index == 1000);
  end_log(log);
}

static void *use_a_log(void *argument) {
  const char *dir = (const char *)argument;
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_INTERVAL);
  char bytes[600];
  for (uint64_t number = 1; number <= 100; number++) {
    plimsoll_ack ack = (plimsoll_ack)(1 + number % 3);
    OK(plimsoll_append(log, bytes, payload(number, bytes), ack, NULL, &error));
  }
  OK(plimsoll_sync(log, NULL, &error));
  CHECK(read_through(log, 1) == 100);
  OK(plimsoll_truncate_after(log, 50, &error));
  CHECK(plimsoll_append(log, bytes, SIZE_MAX, PLIMSOLL_ACK_POLICY, NULL, &error) != PLIMSOLL_OK);
  end_log(log);
  log = open_log(dir, PLIMSOLL_POLICY_INTERVAL);
  CHECK(read_through(log, 1) == 50);
  end_log(log);
  return NULL;
}

static void a_thread_with_little_stack_uses_a_log(const char *dir) {
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  CHECK(pthread_attr_setstacksize(&attributes, 128 << 10) == 0);
  CHECK(pthread_create(&thread, &attributes, use_a_log, (void *)dir) == 0);
  pthread_join(thread, NULL);
  pthread_attr_destroy(&attributes);
}

struct follower {
  plimsoll_reader *reader;
  uint64_t until;
  uint64_t next;
  plimsoll_code ended;
};

static void *follow(void *argument) {
  struct follower *mine = (struct follower *)argument;
  plimsoll_record record;
  for (;;) {
    mine->ended = plimsoll_reader_next(mine->reader, PLIMSOLL_FOREVER, &record, NULL);
    if (mine->ended == PLIMSOLL_BUSY) continue; /* the main thread is in it, and will not be long */
    if (mine->ended != PLIMSOLL_OK) break;
    CHECK(record.index == mine->next);
    check_payload(&record);
    if (mine->next++ == mine->until) break;
  }
  return NULL;
}

static void a_follower_in_another_thread_sees_every_record(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_INTERVAL);
  struct follower follower = {NULL, 5000, 1, PLIMSOLL_OK};
  pthread_t thread;
  char bytes[600];
  OK(plimsoll_reader_open(log, 1, PLIMSOLL_ACK_WRITTEN, &follower.reader, &error));
  pthread_create(&thread, NULL, follow, &follower);
  for (uint64_t number = 1; number <= 5000; number++) {
    OK(plimsoll_append(log, bytes, payload(number, bytes), PLIMSOLL_ACK_POLICY, NULL, &error));
  }
  pthread_join(thread, NULL);
  CHECK(follower.ended == PLIMSOLL_OK && follower.next == 5001);
  plimsoll_reader_free(follower.reader);
  end_log(log);
}

static void a_reader_waits_no_longer_than_it_was_asked_to(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_INTERVAL);
  plimsoll_reader *reader;
  plimsoll_record record;
  OK(plimsoll_reader_open(log, 1, PLIMSOLL_ACK_DURABLE, &reader, &error));
  uint64_t begun = now_ns();
  CHECK(plimsoll_reader_next(reader, 20 * 1000000, &record, &error) == PLIMSOLL_AT_END);
  uint64_t waited = now_ns() - begun;
  CHECK(waited >= 20 * 1000000 && waited < 60 * UINT64_C(1000000000)); /* and not for ever */
  plimsoll_reader_free(reader);
  end_log(log);
}

static void closing_wakes_followers_and_everything_is_durable(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_NEVER);
  struct follower follower = {NULL, UINT64_MAX, 1, PLIMSOLL_OK};
  pthread_t thread;
  char bytes[600];
  OK(plimsoll_reader_open(log, 1, PLIMSOLL_ACK_WRITTEN, &follower.reader, &error));
  pthread_create(&thread, NULL, follow, &follower);
  for (uint64_t number = 1; number <= 100; number++) {
    OK(plimsoll_append(log, bytes, payload(number, bytes), PLIMSOLL_ACK_BUFFERED, NULL, &error));
  }
  OK(plimsoll_close(log, &error));
  pthread_join(thread, NULL);
  CHECK(follower.ended == PLIMSOLL_CLOSED && follower.next == 101);
  /* The handle stays, and says so; so does the reader, which outlives it. */
  CHECK(plimsoll_append(log, "x", 1, PLIMSOLL_ACK_POLICY, NULL, &error) == PLIMSOLL_CLOSED);
  CHECK(plimsoll_wait(log, 1, PLIMSOLL_ACK_DURABLE, PLIMSOLL_FOREVER, &error) == PLIMSOLL_CLOSED);
  CHECK(plimsoll_close(log, &error) == PLIMSOLL_CLOSED && error.code == PLIMSOLL_CLOSED);
  plimsoll_free(log);
  plimsoll_record record;
  CHECK(plimsoll_reader_next(follower.reader, 0, &record, &error) == PLIMSOLL_CLOSED);
  plimsoll_reader_free(follower.reader);
  log = open_log(dir, PLIMSOLL_POLICY_NEVER);
  CHECK(marks_of(log).durable == 100);
  end_log(log);
}

static void *append_until_closed(void *argument) {
  plimsoll_log *log = (plimsoll_log *)argument;
  plimsoll_error mine;
  uint64_t appended = 0;
  for (;;) {
    plimsoll_ack ack = appended % 16 == 0 ? PLIMSOLL_ACK_DURABLE : PLIMSOLL_ACK_BUFFERED;
    plimsoll_code code = plimsoll_append(log, &appended, 8, ack, NULL, &mine);
    if (code != PLIMSOLL_OK) {
      CHECK(code == PLIMSOLL_CLOSED && mine.code == PLIMSOLL_CLOSED);
      return (void *)(uintptr_t)appended;
    }
    appended++;
  }
}

static void closing_while_others_append_loses_nothing_that_was_accepted(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_INTERVAL);
  pthread_t threads[4];
  uint64_t appended = 0;
  for (int thread = 0; thread < 4; thread++) {
    pthread_create(&threads[thread], NULL, append_until_closed, log);
  }
  while (marks_of(log).last_index < 2000) usleep(100);
  OK(plimsoll_close(log, &error));
  for (int thread = 0; thread < 4; thread++) {
    void *count;
    pthread_join(threads[thread], &count);
    appended += (uint64_t)(uintptr_t)count;
  }
  plimsoll_free(log);
  log = open_log(dir, PLIMSOLL_POLICY_INTERVAL);
  CHECK(appended >= 2000 && marks_of(log).durable == appended);
  end_log(log);
}

struct worker {
  plimsoll_log *log;
  uint64_t number;
};

static void *append_and_wait(void *argument) {
  struct worker *mine = (struct worker *)argument;
  plimsoll_error failed;
  plimsoll_marks marks;
  plimsoll_stats stats;
  for (uint64_t turn = 0; turn < 200; turn++) {
    uint64_t index;
    uint64_t content[2] = {mine->number, turn};
    CHECK(plimsoll_append(mine->log, content, 16, PLIMSOLL_ACK_BUFFERED, &index, &failed) == 0);
    if (turn % 8 == mine->number % 8) {
      CHECK(plimsoll_wait(mine->log, index, PLIMSOLL_ACK_DURABLE, PLIMSOLL_FOREVER, &failed) == 0);
      CHECK(plimsoll_log_marks(mine->log, &marks, &failed) == 0);
      CHECK(marks.durable >= index && marks.durable <= marks.written);
      CHECK(marks.written <= marks.last_index);
    }
    if (turn % 50 == 0) {
      memset(&stats, 0, sizeof stats);
      stats.struct_bytes = sizeof stats;
      CHECK(plimsoll_log_stats(mine->log, &stats, &failed) == 0 && stats.records > 0);
      uint64_t none = index + 1000000;
      plimsoll_code code = plimsoll_wait(mine->log, none, PLIMSOLL_ACK_WRITTEN, 0, &failed);
      CHECK(code == PLIMSOLL_OUT_OF_RANGE);
      CHECK(failed.index == none); /* and not what another thread was told */
    }
  }
  return NULL;
}

static void many_threads_use_one_handle(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_INTERVAL);
  struct worker workers[8];
  pthread_t threads[8];
  uint64_t seen[8] = {0};
  plimsoll_reader *reader;
  plimsoll_record record;
  for (uint64_t number = 0; number < 8; number++) {
    workers[number].log = log;
    workers[number].number = number;
    pthread_create(&threads[number], NULL, append_and_wait, &workers[number]);
  }
  for (int number = 0; number < 8; number++) pthread_join(threads[number], NULL);
  OK(plimsoll_sync(log, NULL, &error));
  OK(plimsoll_reader_open(log, 1, PLIMSOLL_ACK_DURABLE, &reader, &error));
  for (uint64_t index = 1; index <= 8 * 200; index++) {
    uint64_t content[2];
    OK(plimsoll_reader_next(reader, 0, &record, &error));
    CHECK(record.index == index && record.len == 16);
    memcpy(content, record.bytes, 16);
    CHECK(content[0] < 8 && content[1] == seen[content[0]]++); /* each thread's own in order */
  }
  plimsoll_reader_free(reader);
  end_log(log);
}

static void a_reader_is_for_one_thread_at_a_time(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_INTERVAL);
  struct follower follower = {NULL, UINT64_MAX, 1, PLIMSOLL_OK};
  plimsoll_record record;
  pthread_t thread;
  plimsoll_code code;
  OK(plimsoll_reader_open(log, 1, PLIMSOLL_ACK_WRITTEN, &follower.reader, &error));
  pthread_create(&thread, NULL, follow, &follower);
  /* As soon as the other one waits in it; before that the two take turns. */
  while ((code = plimsoll_reader_next(follower.reader, 0, &record, &error)) == PLIMSOLL_AT_END) {
    usleep(100);
  }
  CHECK(code == PLIMSOLL_BUSY && error.code == PLIMSOLL_BUSY);
  OK(plimsoll_close(log, &error));
  pthread_join(thread, NULL);
  CHECK(follower.ended == PLIMSOLL_CLOSED);
  plimsoll_reader_free(follower.reader);
  plimsoll_free(log);
}

static void a_second_opener_is_told_who_has_the_log(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_INTERVAL), *second = NULL;
  char pid[32];
  CHECK(plimsoll_open(dir, NULL, &second, NULL, &error) == PLIMSOLL_LOCKED);
  CHECK(second == NULL && error.code == PLIMSOLL_LOCKED);
  CHECK(error.holder == (uint32_t)getpid());
  snprintf(pid, sizeof pid, "process %ld", (long)getpid());
  CHECK(strstr(error.text, pid) != NULL);
  end_log(log);
  log = open_log(dir, PLIMSOLL_POLICY_INTERVAL);
  end_log(log);
}

static void a_bad_directory_is_an_error_with_its_name(const char *dir) {
  char path[4096];
  plimsoll_log *log = NULL;
  snprintf(path, sizeof path, "%s/file", dir);
  FILE *file = fopen(path, "w");
  CHECK(file != NULL && fclose(file) == 0);
  CHECK(plimsoll_open(path, NULL, &log, NULL, &error) == PLIMSOLL_DISK);
  CHECK(log == NULL && error.os_error != 0 && strstr(error.text, path) != NULL);
  CHECK(plimsoll_open("", NULL, &log, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_open(path, NULL, &log, NULL, NULL) == PLIMSOLL_DISK); /* and nobody wants to know */
}

static void null_and_lengths_that_cannot_be_are_errors(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_INTERVAL);
  plimsoll_reader *reader;
  plimsoll_bytes record = {NULL, 1};
  plimsoll_bytes huge = {"x", SIZE_MAX};
  CHECK(plimsoll_open(NULL, NULL, &log, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_open(dir, NULL, NULL, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_append(NULL, "x", 1, PLIMSOLL_ACK_POLICY, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(strcmp(error.text, "log is NULL") == 0);
  CHECK(plimsoll_append(log, NULL, 1, PLIMSOLL_ACK_POLICY, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_append(log, "x", SIZE_MAX, PLIMSOLL_ACK_POLICY, NULL, &error) == PLIMSOLL_TOO_LARGE);
  CHECK(plimsoll_append(log, "x", (size_t)1 << 30, PLIMSOLL_ACK_POLICY, NULL, &error) == PLIMSOLL_TOO_LARGE);
  CHECK(plimsoll_append(log, "x", 1, (plimsoll_ack)77, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_try_append(log, NULL, 1, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_append_batch(log, NULL, 2, PLIMSOLL_ACK_POLICY, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_append_batch(log, &record, 0, PLIMSOLL_ACK_POLICY, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_append_batch(log, &record, 1, PLIMSOLL_ACK_POLICY, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_append_batch(log, &huge, 1, PLIMSOLL_ACK_POLICY, NULL, &error) == PLIMSOLL_TOO_LARGE);
  CHECK(plimsoll_append_batch(log, &record, SIZE_MAX, PLIMSOLL_ACK_POLICY, NULL, &error) == PLIMSOLL_TOO_LARGE);
  CHECK(plimsoll_append_pieces(log, NULL, 1, PLIMSOLL_ACK_POLICY, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_append_pieces(log, &record, 1, PLIMSOLL_ACK_POLICY, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_append_pieces(log, &huge, 1, PLIMSOLL_ACK_POLICY, NULL, &error) == PLIMSOLL_TOO_LARGE);
  CHECK(plimsoll_append_pieces(log, &record, SIZE_MAX, PLIMSOLL_ACK_POLICY, NULL, &error) == PLIMSOLL_TOO_LARGE);
  CHECK(plimsoll_wait(NULL, 1, PLIMSOLL_ACK_DURABLE, 0, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_wait(log, 0, PLIMSOLL_ACK_POLICY, 0, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_wait(log, 0, PLIMSOLL_ACK_BUFFERED, 0, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_on(log, 0, PLIMSOLL_ACK_DURABLE, NULL, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(strcmp(error.text, "call is NULL") == 0);
  CHECK(plimsoll_health(NULL, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_log_marks(log, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_log_stats(log, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_reader_open(log, 1, PLIMSOLL_ACK_WRITTEN, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_reader_open(log, 9, PLIMSOLL_ACK_WRITTEN, &reader, &error) == PLIMSOLL_OUT_OF_RANGE);
  CHECK(plimsoll_reader_open(log, 1, (plimsoll_ack)4, &reader, &error) == PLIMSOLL_INVALID);
  OK(plimsoll_reader_open(log, 1, PLIMSOLL_ACK_POLICY, &reader, &error));
  CHECK(plimsoll_reader_next(reader, 0, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_close(NULL, &error) == PLIMSOLL_INVALID);
  plimsoll_reader_free(reader);
  plimsoll_reader_free(NULL);
  plimsoll_free(NULL);
  CHECK(marks_of(log).last_index == 0); /* nothing of all that was accepted */
  CHECK(strcmp(plimsoll_code_name(PLIMSOLL_LOCKED), "PLIMSOLL_LOCKED") == 0);
  CHECK(strlen(plimsoll_code_name((plimsoll_code)99)) > 0);
  CHECK(strchr(plimsoll_version(), '.') != NULL);
  end_log(log);
}

static void options_that_cannot_be_are_named(const char *dir) {
  plimsoll_options options;
  plimsoll_log *log = NULL;
  memset(&options, 0, sizeof options);
  CHECK(plimsoll_open(dir, &options, &log, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(strstr(error.text, "sizeof(plimsoll_options)") != NULL);
  /* The size of a pointer to it, or of some of it, would leave out a policy that was asked for. */
  options.policy = PLIMSOLL_POLICY_ALWAYS;
  options.struct_bytes = sizeof &options;
  CHECK(plimsoll_open(dir, &options, &log, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(strstr(error.text, "sizeof(plimsoll_options)") != NULL);
  options.struct_bytes = offsetof(plimsoll_options, ring_file);
  CHECK(plimsoll_open(dir, &options, &log, NULL, &error) == PLIMSOLL_INVALID);
  options.struct_bytes = sizeof options;
  options.segment_bytes = 100000;
  CHECK(plimsoll_open(dir, &options, &log, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(strstr(error.text, "segment_bytes") != NULL);
  options.segment_bytes = 0;
  options.policy = (plimsoll_policy)9;
  CHECK(plimsoll_open(dir, &options, &log, NULL, &error) == PLIMSOLL_INVALID);
  options.policy = PLIMSOLL_POLICY_ALWAYS;
  options.reserved[1] = 1;
  CHECK(plimsoll_open(dir, &options, &log, NULL, &error) == PLIMSOLL_INVALID && log == NULL);
}

static void a_profile_of_the_disk_chooses_the_policy(const char *dir) {
  static const char profile[] =
      "{\"format\":\"plimsoll-durability-profile\",\"version\":1,"
      "\"knee\":{\"at_risk_bytes\":262144,\"at_risk_ms\":7.5}}";
  plimsoll_options options = options_of(PLIMSOLL_POLICY_ALWAYS), before;
  plimsoll_log *log;
  OK(plimsoll_options_auto(profile, &options, &error));
  CHECK(options.policy == PLIMSOLL_POLICY_INTERVAL && options.struct_bytes == sizeof options);
  CHECK(options.max_age_ns == 7500000 && options.max_bytes == 262144);
  CHECK(options.segment_bytes == 1 << 20); /* and nothing else is changed */
  OK(plimsoll_open(dir, &options, &log, NULL, &error));
  end_log(log);
  before = options;
  CHECK(plimsoll_options_auto("{}", &options, &error) == PLIMSOLL_INVALID);
  CHECK(strstr(error.text, "profile") != NULL);
  CHECK(plimsoll_options_auto("\xff", &options, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_options_auto(NULL, &options, &error) == PLIMSOLL_INVALID);
  CHECK(plimsoll_options_auto(profile, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(memcmp(&before, &options, sizeof options) == 0);
  options.struct_bytes = 0;
  CHECK(plimsoll_options_auto(profile, &options, &error) == PLIMSOLL_INVALID);
}

static void older_and_newer_callers_are_served(const char *dir) {
  struct {
    plimsoll_options known;
    uint64_t unknown[4];
  } newer;
  plimsoll_recovery recovery;
  plimsoll_log *log = NULL;
  memset(&newer, 0, sizeof newer);
  newer.known.struct_bytes = sizeof newer;
  newer.unknown[2] = 5;
  CHECK(plimsoll_open(dir, &newer.known, &log, NULL, &error) == PLIMSOLL_INVALID);
  CHECK(strstr(error.text, "newer") != NULL);
  newer.unknown[2] = 0;
  OK(plimsoll_open(dir, &newer.known, &log, NULL, &error));
  end_log(log);
  /* An older header had less of what is told. */
  memset(&recovery, 0x55, sizeof recovery);
  recovery.struct_bytes = offsetof(plimsoll_recovery, first_index);
  OK(plimsoll_open(dir, NULL, &log, &recovery, &error));
  CHECK(recovery.clean && !recovery.created);
  CHECK(recovery.first_index == UINT64_C(0x5555555555555555));
  end_log(log);
}

struct closer {
  plimsoll_log *log;
  const char *dir;
  pthread_mutex_t *turn;
};

static void *close_and_open_again(void *argument) {
  struct closer *mine = (struct closer *)argument;
  plimsoll_log *again;
  plimsoll_error failed;
  plimsoll_code code = plimsoll_close(mine->log, &failed);
  CHECK(code == PLIMSOLL_OK || code == PLIMSOLL_CLOSED);
  pthread_mutex_lock(mine->turn);
  code = plimsoll_open(mine->dir, NULL, &again, NULL, &failed);
  if (code != PLIMSOLL_OK) fprintf(stderr, "%s\n", failed.text);
  CHECK(code == PLIMSOLL_OK); /* not PLIMSOLL_LOCKED: whoever closed it is done */
  end_log(again);
  pthread_mutex_unlock(mine->turn);
  return NULL;
}

static void whoever_closes_returns_when_it_is_closed(const char *dir) {
  pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
  static char bytes[50000];
  for (int round = 0; round < 5; round++) {
    plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_NEVER);
    struct closer closer = {log, dir, &turn};
    pthread_t threads[2];
    for (int number = 0; number < 100; number++) {
      OK(plimsoll_append(log, bytes, sizeof bytes, PLIMSOLL_ACK_BUFFERED, NULL, &error));
    }
    for (int thread = 0; thread < 2; thread++) {
      pthread_create(&threads[thread], NULL, close_and_open_again, &closer);
    }
    for (int thread = 0; thread < 2; thread++) pthread_join(threads[thread], NULL);
    plimsoll_free(log);
  }
}

static void a_forked_child_does_not_harm_the_log(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_NEVER);
  plimsoll_reader *reader;
  plimsoll_record record;
  plimsoll_marks marks;
  plimsoll_stats stats;
  char bytes[600];
  int status;
  OK(plimsoll_append(log, bytes, payload(1, bytes), PLIMSOLL_ACK_BUFFERED, NULL, &error));
  OK(plimsoll_reader_open(log, 1, PLIMSOLL_ACK_WRITTEN, &reader, &error));
  stats.struct_bytes = sizeof stats;
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(30); /* the threads of the log are not here: it would wait for them for ever */
    CHECK(plimsoll_append(log, bytes, 9, PLIMSOLL_ACK_BUFFERED, NULL, &error) == PLIMSOLL_INVALID);
    CHECK(strstr(error.text, "fork") != NULL);
    CHECK(plimsoll_sync(log, NULL, &error) == PLIMSOLL_INVALID);
    CHECK(plimsoll_truncate_after(log, 0, &error) == PLIMSOLL_INVALID);
    /* Another thread may have held a lock of the log at the fork. */
    CHECK(plimsoll_log_stats(log, &stats, &error) == PLIMSOLL_INVALID);
    CHECK(plimsoll_log_marks(log, &marks, &error) == PLIMSOLL_INVALID);
    CHECK(plimsoll_health(log, &error) == PLIMSOLL_INVALID);
    CHECK(plimsoll_reader_next(reader, 0, &record, &error) == PLIMSOLL_INVALID);
    CHECK(strstr(error.text, "fork") != NULL);
    CHECK(plimsoll_close(log, &error) == PLIMSOLL_INVALID);
    CHECK(strstr(error.text, "fork") != NULL);
    plimsoll_free(log);
    plimsoll_reader_free(reader);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  plimsoll_reader_free(reader);
  for (uint64_t number = 2; number <= 100; number++) {
    OK(plimsoll_append(log, bytes, payload(number, bytes), PLIMSOLL_ACK_DURABLE, NULL, &error));
  }
  end_log(log);
  log = open_log(dir, PLIMSOLL_POLICY_NEVER);
  CHECK(marks_of(log).last_index == 100 && read_through(log, 1) == 100);
  end_log(log);
}

/* As where one wants nothing but the code, and has little room. */
static void results_may_share_their_place(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_INTERVAL);
  uint64_t index = 7;
  OK(plimsoll_append(log, &index, sizeof index, PLIMSOLL_ACK_POLICY, &index, &error));
  CHECK(index == 1);
  plimsoll_reader *reader;
  plimsoll_record record;
  OK(plimsoll_sync(log, NULL, &error));
  OK(plimsoll_reader_open(log, 1, PLIMSOLL_ACK_DURABLE, &reader, &error));
  OK(plimsoll_reader_next(reader, 0, &record, &error));
  memcpy(&index, record.bytes, sizeof index);
  CHECK(index == 7); /* what it was when it was appended */
  plimsoll_reader_free(reader);
  end_log(log);
}

static void what_is_cut_off_never_comes_back(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_INTERVAL);
  char bytes[600];
  uint64_t index;
  for (uint64_t number = 1; number <= 100; number++) {
    OK(plimsoll_append(log, bytes, payload(number, bytes), PLIMSOLL_ACK_POLICY, NULL, &error));
  }
  OK(plimsoll_truncate_after(log, 60, &error));
  CHECK(marks_of(log).last_index == 60 && marks_of(log).durable == 60);
  OK(plimsoll_append(log, bytes, payload(61, bytes), PLIMSOLL_ACK_POLICY, &index, &error));
  CHECK(index == 61);
  end_log(log);
  log = open_log(dir, PLIMSOLL_POLICY_INTERVAL);
  CHECK(marks_of(log).last_index == 61 && read_through(log, 1) == 61);
  end_log(log);
}

static void retention_takes_whole_segments_and_readers_are_told(const char *dir) {
  plimsoll_log *log = open_log(dir, PLIMSOLL_POLICY_INTERVAL);
  static char bytes[10000];
  plimsoll_reader *reader;
  plimsoll_record record;
  uint64_t first, again;
  for (int number = 1; number <= 400; number++) {
    OK(plimsoll_append(log, bytes, sizeof bytes, PLIMSOLL_ACK_POLICY, NULL, &error));
  }
  OK(plimsoll_sync(log, NULL, &error));
  OK(plimsoll_reader_open(log, 1, PLIMSOLL_ACK_WRITTEN, &reader, &error));
  OK(plimsoll_truncate_before(log, 250, &first, &error));
  CHECK(first > 100 && first <= 250 && marks_of(log).first_index == first);
  CHECK(plimsoll_reader_next(reader, 0, &record, &error) == PLIMSOLL_OUT_OF_RANGE);
  plimsoll_reader_free(reader);
  OK(plimsoll_retain_bytes(log, 1 << 20, &again, &error));
  CHECK(again > first && again <= 400);
  OK(plimsoll_retain_age(log, 3600 * UINT64_C(1000000000), &first, &error));
  CHECK(first == again); /* nothing is that old */
  end_log(log);
}

static void a_full_ring_refuses_and_loses_nothing(const char *dir) {
  plimsoll_options options;
  plimsoll_log *log;
  static char bytes[1500];
  uint64_t accepted = 0, refused = 0, index;
  memset(&options, 0, sizeof options);
  options.struct_bytes = sizeof options;
  options.segment_bytes = 64 << 10;
  options.ring_bytes = 4096;
  OK(plimsoll_open(dir, &options, &log, NULL, &error));
  for (int attempt = 0; attempt < 200000 && refused < 10; attempt++) {
    plimsoll_code code = plimsoll_try_append(log, bytes, sizeof bytes, &index, &error);
    if (code == PLIMSOLL_OK) {
      CHECK(index == ++accepted);
    } else {
      CHECK(code == PLIMSOLL_WOULD_BLOCK && strstr(error.text, "bytes") != NULL);
      refused++;
    }
  }
  CHECK(refused > 0 && marks_of(log).last_index == accepted);
  end_log(log);
}

/* The process that is killed: tells of each record as soon as it is as far as was asked. */
static void be_killed(const char *dir, const char *ring, plimsoll_ack ack, int said) {
  plimsoll_options options;
  plimsoll_log *log;
  char bytes[600];
  memset(&options, 0, sizeof options);
  options.struct_bytes = sizeof options;
  options.segment_bytes = 256 << 10;
  options.ring_file = ring;
  OK(plimsoll_open(dir, &options, &log, NULL, &error));
  for (uint64_t number = marks_of(log).last_index + 1;; number++) {
    uint64_t index;
    OK(plimsoll_append(log, bytes, payload(number, bytes), ack, &index, &error));
    CHECK(index == number && write(said, &index, sizeof index) == sizeof index);
  }
}

static void kill_and_look(const char *dir, const char *ring, plimsoll_ack ack) {
  uint64_t promised = 0, told = 0;
  for (int round = 0; round < 12; round++) {
    int said[2];
    uint64_t index;
    CHECK(pipe(said) == 0);
    pid_t victim = fork();
    CHECK(victim >= 0);
    if (victim == 0) {
      close(said[0]);
      be_killed(dir, ring, ack, said[1]);
    }
    close(said[1]);
    /* Some other moment each time; then all that it said before it died. */
    for (int heard = 0; read(said[0], &index, sizeof index) == sizeof index; heard++) {
      promised = index;
      told++;
      if (heard == 3 + round * 41) kill(victim, SIGKILL);
    }
    close(said[0]);
    int status;
    CHECK(waitpid(victim, &status, 0) == victim && WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGKILL);

    plimsoll_options options;
    plimsoll_recovery recovery;
    plimsoll_log *log;
    memset(&options, 0, sizeof options);
    options.struct_bytes = sizeof options;
    options.segment_bytes = 256 << 10;
    options.ring_file = ring;
    memset(&recovery, 0, sizeof recovery);
    recovery.struct_bytes = sizeof recovery;
    OK(plimsoll_open(dir, &options, &log, &recovery, &error));
    CHECK(!recovery.lost);
    CHECK(recovery.ring_ignored[0] == 0);
    /* With a ring in a file the segments may not have changed yet. */
    CHECK(ring != NULL || !recovery.clean);
    CHECK(recovery.last_index >= promised);
    OK(plimsoll_sync(log, NULL, &error));
    CHECK(read_through(log, 1) == recovery.last_index);
    promised = recovery.last_index;
    /* It ends as in a crash, or well; then goes on. */
    if (round % 2 == 0) OK(plimsoll_close(log, &error));
    plimsoll_free(log);
  }
  printf("%" PRIu64 " acknowledged, 12 kills, nothing lost\n", told);
}

static void what_was_durable_survives_a_kill(const char *dir) {
  kill_and_look(dir, NULL, PLIMSOLL_ACK_DURABLE);
}

static void what_was_written_survives_a_kill(const char *dir) {
  kill_and_look(dir, NULL, PLIMSOLL_ACK_WRITTEN);
}

static void what_was_buffered_in_a_ring_file_survives_a_kill(const char *dir) {
  char ring[64];
  if (access("/dev/shm", W_OK) != 0) {
    printf("SKIPPED: no /dev/shm here\n");
    return;
  }
  snprintf(ring, sizeof ring, "/dev/shm/plimsoll-capi-%ld", (long)getpid());
  kill_and_look(dir, ring, PLIMSOLL_ACK_BUFFERED);
  unlink(ring);
}

static const struct promise promises[] = {
    PROMISE(what_was_appended_is_read_after_reopening),
    PROMISE(an_empty_record_is_a_record),
    PROMISE(a_batch_gets_indexes_that_follow_each_other),
    PROMISE(a_wait_asks_for_the_sync_and_ends_in_time),
    PROMISE(a_callback_is_called_once_when_its_record_has_come),
    PROMISE(a_watch_asks_for_nothing_and_is_told_all_the_same),
    PROMISE(a_callback_is_told_why_its_record_never_comes),
    PROMISE(a_callback_that_calls_the_log_is_refused),
    PROMISE(a_log_that_has_stopped_says_so_to_all_who_ask),
    PROMISE(a_record_is_gathered_from_pieces),
    PROMISE(a_piece_of_a_record_is_read_without_the_rest),
    PROMISE(a_log_that_is_made_begins_where_it_is_told),
    PROMISE(a_thread_with_little_stack_uses_a_log),
    PROMISE(a_follower_in_another_thread_sees_every_record),
    PROMISE(a_reader_waits_no_longer_than_it_was_asked_to),
    PROMISE(closing_wakes_followers_and_everything_is_durable),
    PROMISE(closing_while_others_append_loses_nothing_that_was_accepted),
    PROMISE(many_threads_use_one_handle),
    PROMISE(a_reader_is_for_one_thread_at_a_time),
    PROMISE(a_second_opener_is_told_who_has_the_log),
    PROMISE(a_bad_directory_is_an_error_with_its_name),
    PROMISE(null_and_lengths_that_cannot_be_are_errors),
    PROMISE(options_that_cannot_be_are_named),
    PROMISE(a_profile_of_the_disk_chooses_the_policy),
    PROMISE(older_and_newer_callers_are_served),
    PROMISE(whoever_closes_returns_when_it_is_closed),
    PROMISE(a_forked_child_does_not_harm_the_log),
    PROMISE(results_may_share_their_place),
    PROMISE(what_is_cut_off_never_comes_back),
    PROMISE(retention_takes_whole_segments_and_readers_are_told),
    PROMISE(a_full_ring_refuses_and_loses_nothing),
    PROMISE(what_was_durable_survives_a_kill),
    PROMISE(what_was_written_survives_a_kill),
    PROMISE(what_was_buffered_in_a_ring_file_survives_a_kill),
};

int main(int argc, char **argv) {
  return keep(promises, sizeof promises / sizeof promises[0], argc, argv);
}
