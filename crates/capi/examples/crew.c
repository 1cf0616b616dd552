#include <inttypes.h>
#include <plimsoll.h>
#include <stdio.h>
#include <stdlib.h>

#define TENANTS 100

static plimsoll_error error;

static void check(plimsoll_code code) {
  if (code != PLIMSOLL_OK) {
    fprintf(stderr, "%s: %s\n", plimsoll_code_name(code), error.text);
    exit(1);
  }
}

int main(int argc, char **argv) {
  plimsoll_crew_options options = {.struct_bytes = sizeof options, .threads = 2};
  plimsoll_crew *crew;
  check(plimsoll_crew_start(&options, &crew, &error));
  plimsoll_log *logs[TENANTS];
  for (int tenant = 0; tenant < TENANTS; tenant++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%d", argc > 1 ? argv[1] : "tenants", tenant);
    check(plimsoll_crew_open_log(crew, path, NULL, &logs[tenant], NULL, &error));
    check(plimsoll_append(logs[tenant], "hello", 5, PLIMSOLL_ACK_POLICY, NULL, &error));
  }

  /* Only this log is synced. */
  check(plimsoll_append(logs[42], "paid", 4, PLIMSOLL_ACK_DURABLE, NULL, &error));
  plimsoll_marks marks;
  check(plimsoll_log_marks(logs[42], &marks, &error));
  printf("tenant 42: records up to %" PRIu64 " are durable\n", marks.durable);

  for (int tenant = 0; tenant < TENANTS; tenant++) {
    check(plimsoll_close(logs[tenant], &error));
    plimsoll_free(logs[tenant]);
  }
  plimsoll_crew_free(crew);
  return 0;
}
