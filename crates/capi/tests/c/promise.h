/* What programs need that keep promises of plimsoll.h, one function for each; C11 and C++17.
 *
 *   PROGRAM --list                  the names
 *   PROGRAM NAME DIRECTORY          keeps one, in an empty directory, or says which line did not hold
 */
#ifndef PROMISE_H
#define PROMISE_H

#ifndef _GNU_SOURCE /* g++ says it itself */
#define _GNU_SOURCE
#endif
#include <inttypes.h>
#include <plimsoll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static plimsoll_error error; /* of the main thread */

#define CHECK(what)                                                                     \
  do {                                                                                  \
    if (!(what)) {                                                                      \
      fprintf(stderr, "%s:%d: does not hold: %s (%s)\n", __FILE__, __LINE__, #what, error.text); \
      abort();                                                                          \
    }                                                                                   \
  } while (0)
#define OK(call) CHECK((call) == PLIMSOLL_OK)

static inline plimsoll_options options_of(uint32_t policy) {
  plimsoll_options options;
  memset(&options, 0, sizeof options);
  options.struct_bytes = sizeof options;
  options.policy = (plimsoll_policy)policy;
  options.segment_bytes = 1 << 20;
  return options;
}

static inline plimsoll_log *open_log(const char *path, uint32_t policy) {
  plimsoll_options options = options_of(policy);
  plimsoll_log *log = NULL;
  OK(plimsoll_open(path, &options, &log, NULL, &error));
  return log;
}

static inline void end_log(plimsoll_log *log) {
  OK(plimsoll_close(log, &error));
  plimsoll_free(log);
}

static inline plimsoll_marks marks_of(plimsoll_log *log) {
  plimsoll_marks marks;
  OK(plimsoll_log_marks(log, &marks, &error));
  return marks;
}

/* A record that says its index and is as long as that makes it. */
static inline size_t payload(uint64_t index, char *to) {
  size_t len = 8 + (size_t)(index * 37 % 500);
  memset(to, (int)('a' + index % 26), len);
  memcpy(to, &index, 8);
  return len;
}

static inline void check_payload(const plimsoll_record *record) {
  char expected[600];
  size_t len = payload(record->index, expected);
  CHECK(record->len == len && memcmp(record->bytes, expected, len) == 0);
}

/* Reads everything, and says how many records there were. */
static inline uint64_t read_through(plimsoll_log *log, uint64_t from) {
  plimsoll_reader *reader;
  plimsoll_record record;
  plimsoll_code code;
  uint64_t read = 0;
  OK(plimsoll_reader_open(log, from, PLIMSOLL_ACK_WRITTEN, &reader, &error));
  while ((code = plimsoll_reader_next(reader, 0, &record, &error)) == PLIMSOLL_OK) {
    CHECK(record.index == from + read);
    check_payload(&record);
    read++;
  }
  CHECK(code == PLIMSOLL_AT_END);
  plimsoll_reader_free(reader);
  return read;
}

struct promise {
  const char *name;
  void (*keep)(const char *dir);
};
#define PROMISE(name) {#name, name}

/* What `main` does. */
static inline int keep(const struct promise *promises, size_t count, int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "--list") == 0) {
    for (size_t each = 0; each < count; each++) printf("%s\n", promises[each].name);
    return 0;
  }
  for (size_t each = 0; argc == 3 && each < count; each++) {
    if (strcmp(argv[1], promises[each].name) == 0) {
      alarm(300); /* what hangs does not keep its promise */
      promises[each].keep(argv[2]);
      return 0;
    }
  }
  fprintf(stderr, "usage: %s --list | NAME DIRECTORY\n", argv[0]);
  return 2;
}

#endif /* PROMISE_H */
