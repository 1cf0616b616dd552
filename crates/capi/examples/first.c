#include <inttypes.h>
#include <plimsoll.h>
#include <stdio.h>
#include <stdlib.h>

static plimsoll_error error;

static void check(plimsoll_code code) {
  if (code != PLIMSOLL_OK) {
    fprintf(stderr, "%s: %s\n", plimsoll_code_name(code), error.text);
    exit(1);
  }
}

int main(int argc, char **argv) {
  const char *path = argc > 1 ? argv[1] : "events";
  plimsoll_options options = {.struct_bytes = sizeof options};
  options.max_age_ns = 50 * 1000000; /* synced every 50 ms; at twice that appends wait */
  plimsoll_recovery recovery = {.struct_bytes = sizeof recovery};
  plimsoll_log *log;
  check(plimsoll_open(path, &options, &log, &recovery, &error));
  printf("records %" PRIu64 " to %" PRIu64 "%s\n", recovery.first_index, recovery.last_index,
         recovery.torn ? ", and an unfinished write was cut off" : "");

  /* As fast as memory; the index is what to wait on. */
  uint64_t first;
  check(plimsoll_append(log, "one", 3, PLIMSOLL_ACK_POLICY, &first, &error));
  plimsoll_bytes both[] = {{"all of these", 12}, {"or none", 7}};
  check(plimsoll_append_batch(log, both, 2, PLIMSOLL_ACK_POLICY, NULL, &error));

  /* This one survives a power cut, and so does everything before it. */
  check(plimsoll_append(log, "four", 4, PLIMSOLL_ACK_DURABLE, NULL, &error));

  plimsoll_reader *reader;
  check(plimsoll_reader_open(log, first, PLIMSOLL_ACK_DURABLE, &reader, &error));
  plimsoll_record record;
  plimsoll_code code;
  while ((code = plimsoll_reader_next(reader, 0, &record, &error)) == PLIMSOLL_OK) {
    printf("%" PRIu64 ": %.*s\n", record.index, (int)record.len, (const char *)record.bytes);
  }
  if (code != PLIMSOLL_AT_END) {
    check(code);
  }
  plimsoll_reader_free(reader);

  check(plimsoll_close(log, &error)); /* everything is durable */
  plimsoll_free(log);
  return 0;
}
