/*
 * plimsoll.h: an embeddable commit log whose appenders never wait for a disk that they did not ask to
 * wait for. README.md beside this header has a whole program.
 *
 * Made by cbindgen from the Rust sources (`just c-header`); do not edit.
 *
 * Words. A record has an index, counted from 1 or from options.first_index. It is *buffered* (in
 * memory), then *written* (the kernel has it: it survives a crash of the process), then *durable* (a
 * good sync covers it: it survives a power cut). durable <= written <= last_index.
 *
 * Errors. Every call that can fail returns a plimsoll_code; 0 is success, and the numbers never change.
 * The last parameter takes the words: a plimsoll_error of the caller's, or NULL. It is written only
 * where the call fails; results are written only where it succeeds.
 * There is no errno to look at, no text to free, and nothing that another thread can overwrite.
 *
 * Pointers. What is passed in is read during the call and not kept, but for the context of plimsoll_on
 * and plimsoll_watch. Handles come from plimsoll_open, plimsoll_reader_open and plimsoll_crew_start,
 * and go to plimsoll_free, plimsoll_reader_free and plimsoll_crew_free, once each. A pointer that is NULL
 * where that is not allowed is PLIMSOLL_INVALID, and a length that cannot be is PLIMSOLL_TOO_LARGE; a
 * pointer to something else than it says is undefined behaviour, as ever in C.
 *
 * Threads. Any thread may use any handle at any time: a log and a crew from many threads at once, a
 * reader from one at a time (a second one is told PLIMSOLL_BUSY). Only plimsoll_free,
 * plimsoll_reader_free and plimsoll_crew_free must be the last call with their handle; plimsoll_close need
 * not be: see there. A call needs 128 KiB of stack. No call is safe in a signal handler, and no thread may
 * be cancelled in one (pthread_cancel). After fork(2) the child must not use the handles of its parent, and
 * should exec or end soon: until it does, it holds the log's lock as well. Should it use them, it is told
 * PLIMSOLL_INVALID, and what it frees is leaked: none of it touches the log.
 *
 * Growth. A struct that may get more fields begins with struct_bytes: set it to its sizeof. A program
 * that was compiled with an older or newer header works with the library as long as it does not ask for
 * what that does not know. Fields that are 0 mean the default.
 */

#ifndef PLIMSOLL_H
#define PLIMSOLL_H


#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A timeout that never ends. */
#define PLIMSOLL_FOREVER UINT64_MAX

// What a call says. The numbers never change; later versions may have more of them.
typedef enum {
  // It was done.
  PLIMSOLL_OK = 0,
  // The next record is not there yet, in the time that was given. Not an error: ask again.
  PLIMSOLL_AT_END = 1,
  // The ring is full: the disk is behind. Nothing was accepted; try later.
  PLIMSOLL_WOULD_BLOCK = 2,
  // It did not happen in time. It still may.
  PLIMSOLL_TIMED_OUT = 3,
  // No such record: not yet appended, or gone by retention.
  PLIMSOLL_OUT_OF_RANGE = 4,
  // The record was cut off by plimsoll_truncate_after while somebody waited for it.
  PLIMSOLL_TRUNCATED = 5,
  // More than a log with these options takes at once (half of its ring). Nothing was accepted.
  PLIMSOLL_TOO_LARGE = 6,
  // No room on the disk for another segment. Nothing was accepted; what was accepted before has its
  // room. Free some, or truncate, and go on.
  PLIMSOLL_OUT_OF_SPACE = 7,
  // The log was closed.
  PLIMSOLL_CLOSED = 8,
  // Somebody else has the log open: `holder` says which process, if that is known.
  PLIMSOLL_LOCKED = 9,
  // The disk, or the system, refused. Nothing was accepted, and a log that is open goes on.
  PLIMSOLL_DISK = 10,
  // A write or a sync failed, and so did every way around it. Nothing more is accepted; records
  // after `index` may be lost. Reads go on. Close, mend the disk, open again.
  PLIMSOLL_STOPPED = 11,
  // Durable bytes have changed, or are gone. Nothing was cut; the text names file and records.
  PLIMSOLL_CORRUPT = 12,
  // An argument or an option that cannot be. The text says which.
  PLIMSOLL_INVALID = 13,
  // There are no more indexes: only a log that was made to look so gets there.
  PLIMSOLL_EXHAUSTED = 14,
  // Another thread is in a call with this reader.
  PLIMSOLL_BUSY = 15,
  // A bug in Plimsoll. The text is worth reporting; close the log, and open it again.
  PLIMSOLL_BUG = 16,
  // An error that this version of the header has no name for. The text says what.
  PLIMSOLL_OTHER = 17,
  // Another version of Plimsoll wrote this log; the text says which. Nothing was changed. Use that
  // one, or a newer.
  PLIMSOLL_VERSION = 18,
} plimsoll_code;

// How far a record must be when an append returns.
typedef enum {
  // What the policy gives: durable under PLIMSOLL_POLICY_ALWAYS, otherwise buffered.
  PLIMSOLL_ACK_POLICY = 0,
  // In memory of this process. Survives nothing; a crash of the process where the ring is a file
  // (ring_file).
  PLIMSOLL_ACK_BUFFERED = 1,
  // With the kernel. Survives a crash of the process.
  PLIMSOLL_ACK_WRITTEN = 2,
  // Covered by a good sync. Survives crashes and power cuts.
  PLIMSOLL_ACK_DURABLE = 3,
} plimsoll_ack;

// When the log syncs on its own account. Whoever waits for more gets it, under any policy.
typedef enum {
  // In the background: a sync is due once a record is as old as max_age_ns, or max_bytes are not
  // durable. Appends wait where twice as much is not durable, or one is twice as old: no more than that
  // a power cut may take. The default: a second, 64 MiB.
  PLIMSOLL_POLICY_INTERVAL = 0,
  // An append returns when the record is durable; one sync serves everybody who waits.
  PLIMSOLL_POLICY_ALWAYS = 1,
  // Only when a segment is full, and at plimsoll_close.
  PLIMSOLL_POLICY_NEVER = 2,
} plimsoll_policy;

// Threads and ring memory that many logs share.
typedef struct plimsoll_crew plimsoll_crew;

// A log that is open, or was.
typedef struct plimsoll_log plimsoll_log;

// Reads the records of a log in order.
typedef struct plimsoll_reader plimsoll_reader;

// How a log is opened. Set struct_bytes, leave what you do not care for 0: the defaults are right for
// most.
//
// plimsoll_options options = {.struct_bytes = sizeof options, .policy = PLIMSOLL_POLICY_ALWAYS};
typedef struct {
  // sizeof(plimsoll_options)
  size_t struct_bytes;
  // When the log syncs by itself.
  plimsoll_policy policy;
  // Through the page cache also where the filesystem lets us past it (O_DIRECT).
  bool page_cache;
  // Open although durable records are lost: cut the log before the first of them. For whoever has
  // looked at `plimsoll log verify`.
  bool accept_loss;
  // 0.
  uint8_t reserved[2];
  // Of PLIMSOLL_POLICY_INTERVAL: age of the oldest record that is not durable; 0: a second.
  uint64_t max_age_ns;
  // Of PLIMSOLL_POLICY_INTERVAL: bytes that are not durable; 0: 64 MiB.
  uint64_t max_bytes;
  // Size of a segment file, a multiple of 4 KiB, 64 KiB to 1 GiB; 0: 64 MiB.
  uint64_t segment_bytes;
  // Bytes of records that may be accepted and not yet durable, a power of two, 4 KiB to 512 MiB,
  // whatever the size of a segment; 0: 32 MiB. The largest record is half of it.
  uint64_t ring_bytes;
  // Index of the first record of a log that is made; 0: 1. A log that exists goes on where it is.
  uint64_t first_index;
  // NULL, or a file on tmpfs (like /dev/shm/NAME) for the ring: then a record survives a crash of the
  // process from the moment an append returns. One file for one log.
  const char *ring_file;
} plimsoll_options;

// Why a call failed. Yours: nothing in it needs to be freed, and its size never changes.
typedef struct {
  // What the call returned.
  plimsoll_code code;
  // errno of the system call that failed, or 0.
  int32_t os_error;
  // PLIMSOLL_LOCKED: the process that has the log, or 0.
  uint32_t holder;
  // 0.
  uint32_t reserved;
  // PLIMSOLL_STOPPED: the last durable record. PLIMSOLL_OUT_OF_SPACE: the last that was accepted.
  // PLIMSOLL_OUT_OF_RANGE, _TIMED_OUT, _TRUNCATED: the record. PLIMSOLL_CORRUPT: the first that is
  // lost. Otherwise 0.
  uint64_t index;
  // What happened and why, in English, in UTF-8, ended by NUL.
  char text[1000];
} plimsoll_error;

// What opening a log found, and did about it.
typedef struct {
  // sizeof(plimsoll_recovery)
  size_t struct_bytes;
  // There was no log: this one is new.
  bool created;
  // The log was closed, and nothing happened since.
  bool clean;
  // An unfinished last write was cut off. News, not an error: nothing in the log says that any of it was
  // durable.
  bool torn;
  // Durable records are lost, and were given up by accept_loss.
  bool lost;
  // Files that were not part of the log any more, or not yet, and were removed.
  uint32_t discarded_files;
  // The oldest record.
  uint64_t first_index;
  // The newest. Everything up to it is durable now.
  uint64_t last_index;
  // Records that were found in the ring's file and in no segment.
  uint64_t replayed;
  // If torn: where the first record begins that is not there in whole.
  uint64_t torn_byte_offset;
  // If lost: the first of them, as far as is known.
  uint64_t lost_first;
  // If lost: the last of them, as far as is known.
  uint64_t lost_last;
  // If torn or lost: the file.
  char segment[32];
  // If torn or lost: what is wrong there.
  char damage[128];
  // Why the ring's file could not be used, if it held anything; otherwise empty.
  char ring_ignored[256];
} plimsoll_recovery;

// How far a log is: durable <= written <= last_index.
typedef struct {
  // The oldest record; one more than the newest if there is none.
  uint64_t first_index;
  // The newest that was accepted.
  uint64_t last_index;
  // The last that the kernel has.
  uint64_t written;
  // The last that is durable.
  uint64_t durable;
} plimsoll_marks;

// A distribution, of nanoseconds or of what is counted.
typedef struct {
  // How many were counted.
  uint64_t n;
  // The median.
  uint64_t p50;
  // 99 of 100 are no larger.
  uint64_t p99;
  // 999 of 1000 are no larger.
  uint64_t p999;
  // The largest.
  uint64_t max;
} plimsoll_distribution;

// What a log did since it was opened. Quantiles are right to 1 %.
typedef struct {
  // sizeof(plimsoll_stats)
  size_t struct_bytes;
  // Records appended.
  uint64_t records;
  // Bytes of their payloads.
  uint64_t payload_bytes;
  // Bytes written to segments.
  uint64_t written_bytes;
  // Age of the oldest record that the kernel has and that is not durable.
  uint64_t lag_ns;
  // Bytes that are held in the ring.
  uint64_t ring_bytes;
  // The largest record that this log takes.
  uint64_t max_record_bytes;
  // Files of the log.
  uint64_t segments;
  // Segments that were filled.
  uint64_t rotations;
  // Segments that failed and were replaced.
  uint64_t failovers;
  // Appends, one in 64, and all that waited for room: copying into the ring, with the wait. So its upper
  // quantiles are of more than the appends of a log that waits often; stall_ns has those alone.
  plimsoll_distribution append_ns;
  // Writes to segments.
  plimsoll_distribution write_ns;
  // Syncs.
  plimsoll_distribution sync_ns;
  // Records that became durable by one sync.
  plimsoll_distribution group_records;
  // Bytes in the ring, when the writer came to take some.
  plimsoll_distribution occupancy_bytes;
  // Appends that waited for room.
  plimsoll_distribution stall_ns;
  // How records are made durable here: o_direct+rwf_dsync, say.
  char method[64];
  // How segments are prepared here: zeroed, reserved or growing.
  char layout[32];
} plimsoll_stats;

// Bytes that are passed in: a record, or a piece of one.
typedef struct {
  // Where they are; may be NULL if there are none.
  const void *bytes;
  // How many.
  size_t len;
} plimsoll_bytes;

// What plimsoll_on and plimsoll_watch call, once: with NULL when the record has come as far as was
// asked, or else with why it never will, which is valid until the call returns.
//
// It is called from a thread of the log (or of its crew), or from one that is in a call with the log, which
// may be the one that asked for it. Appends and syncs wait behind it: it should return at once, must not
// throw (C++), and must not call Plimsoll: such a call is PLIMSOLL_INVALID, and what it frees is leaked.
typedef void (*plimsoll_call)(void *context, const plimsoll_error *error);

// A record that was read.
typedef struct {
  // Its number.
  uint64_t index;
  // What was appended; the reader's, until its next call. Never NULL.
  const void *bytes;
  // How many bytes.
  size_t len;
} plimsoll_record;

// What a crew has. Set struct_bytes, leave what you do not care for 0.
typedef struct {
  // sizeof(plimsoll_crew_options)
  size_t struct_bytes;
  // Bytes of records that may be accepted and not yet durable, in all logs together; 0: 256 MiB. Who
  // finds them used up waits, as with a ring that is full. A log has 64 KiB in any case.
  uint64_t ring_bytes;
  // Threads for all logs, at most 1,024; 0: 4. One that waits for a disk serves no other log meanwhile.
  uint32_t threads;
  // 0.
  uint32_t reserved;
} plimsoll_crew_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library: "0.1.0". Static.
const char *plimsoll_version(void);

// The name of a code: "PLIMSOLL_LOCKED". Static, never NULL, whatever number it is.
const char *plimsoll_code_name(plimsoll_code code);

// Sets policy, max_age_ns and max_bytes of options to what suits the disk that a durability profile is about
// (`plimsoll lab` writes durability-profile.json): as little at risk as costs under 10 % more than one sync at
// the end.
//
// profile: its text. options: with struct_bytes set.
//
// PLIMSOLL_INVALID: no such profile, or nothing was measured that tells.
plimsoll_code plimsoll_options_auto(const char *profile,
                                    plimsoll_options *options,
                                    plimsoll_error *error);

// Opens the log in a directory, or makes one there; the directory is made as well. Everything that
// the recovery counts is durable on return, but for what was in the ring's file. Cost: two file heads
// are read, and the newest segment, whole, with those before it that may not be durable; of a log that was
// closed no more than 256 KiB.
//
// options: NULL is all defaults. log: the handle; close it with plimsoll_close, then plimsoll_free
// it. recovery: what was found, or NULL.
//
// PLIMSOLL_LOCKED: another process (or handle) has it. PLIMSOLL_CORRUPT: durable records are lost;
// nothing was changed. PLIMSOLL_DISK: the directory fails. PLIMSOLL_INVALID: options.
plimsoll_code plimsoll_open(const char *path,
                            const plimsoll_options *options,
                            plimsoll_log **log,
                            plimsoll_recovery *recovery,
                            plimsoll_error *error);

// Makes everything durable, says so in the log, and ends it: everything that was appended is durable
// if this succeeds. The handle stays until plimsoll_free, and every later call with it, from any
// thread, is PLIMSOLL_CLOSED, at once also while this still waits.
//
// Calls that are in the log already end first, as they would without this: an append gets its room,
// a wait gets its sync or its timeout. Readers that wait are woken, and told PLIMSOLL_CLOSED.
//
// PLIMSOLL_STOPPED, _OUT_OF_SPACE, _DISK: closed, but not everything is durable. PLIMSOLL_CLOSED:
// another call closed it, and has ended. PLIMSOLL_INVALID: after a fork, in the child.
plimsoll_code plimsoll_close(plimsoll_log *log,
                             plimsoll_error *error);

// Frees a handle; NULL is nothing. The last call with it. A log that was not closed ends as in a crash
// of the process, but for what can still be written: nothing says how it went. Its readers go on
// reading what is there. In a forked child it is leaked.
void plimsoll_free(plimsoll_log *log);

// Whether the log is as it should be: then PLIMSOLL_OK. Asks nothing of the disk, and says nothing of
// what the disk will do next.
//
// PLIMSOLL_STOPPED: nothing is accepted any more, and records after `index` may be lost.
// PLIMSOLL_OUT_OF_SPACE: a segment failed, and there is no room for another, so what was accepted after
// `index` is in memory only; the log goes on once there is room. PLIMSOLL_CLOSED.
plimsoll_code plimsoll_health(plimsoll_log *log,
                              plimsoll_error *error);

// How far the log is. Cost: four loads.
plimsoll_code plimsoll_log_marks(plimsoll_log *log,
                                 plimsoll_marks *marks,
                                 plimsoll_error *error);

// What the log did since it was opened. Set stats->struct_bytes before.
plimsoll_code plimsoll_log_stats(plimsoll_log *log,
                                 plimsoll_stats *stats,
                                 plimsoll_error *error);

// Appends a record: a copy in memory, about 0.2 us for 100 bytes, and then a wait until it is as far
// as `ack` says. Waits if the ring is full.
//
// bytes: may be NULL if len is 0. index: its number, or NULL.
//
// PLIMSOLL_TOO_LARGE, _OUT_OF_SPACE: not accepted, and the log goes on. PLIMSOLL_STOPPED: it may have
// been accepted, but it is not as far as was asked. PLIMSOLL_CLOSED.
plimsoll_code plimsoll_append(plimsoll_log *log,
                              const void *bytes,
                              size_t len,
                              plimsoll_ack ack,
                              uint64_t *index,
                              plimsoll_error *error);

// Appends one record whose bytes lie in pieces, one behind the other, as with writev(2), without putting
// them together first. On return it is as far as `ack` says.
//
// pieces, count: at most 65,536; NULL and 0 are an empty record. index: its number, or NULL.
//
// As plimsoll_append.
plimsoll_code plimsoll_append_pieces(plimsoll_log *log,
                                     const plimsoll_bytes *pieces,
                                     size_t count,
                                     plimsoll_ack ack,
                                     uint64_t *index,
                                     plimsoll_error *error);

// As plimsoll_append with PLIMSOLL_ACK_BUFFERED, but never waits: PLIMSOLL_WOULD_BLOCK where that would
// wait for room in the ring.
plimsoll_code plimsoll_try_append(plimsoll_log *log,
                                  const void *bytes,
                                  size_t len,
                                  uint64_t *index,
                                  plimsoll_error *error);

// Appends records that stay together: after a crash all of them are there, or none. Their indexes
// follow each other. At most half of the ring's bytes.
//
// records, count: at least one. first_index: the number of the first, or NULL.
//
// As plimsoll_append.
plimsoll_code plimsoll_append_batch(plimsoll_log *log,
                                    const plimsoll_bytes *records,
                                    size_t count,
                                    plimsoll_ack ack,
                                    uint64_t *first_index,
                                    plimsoll_error *error);

// Waits until a record is as far as `level` says: PLIMSOLL_ACK_WRITTEN (it survives a crash of the
// process) or PLIMSOLL_ACK_DURABLE (it survives a power cut). Asks for that, under any policy: the
// write or the sync goes on when the time is over. Any number of threads may wait, for any record.
//
// timeout_ns: PLIMSOLL_FOREVER, or how long at most, also where the disk hangs; 0 asks and only looks.
//
// PLIMSOLL_TIMED_OUT: it still may come. PLIMSOLL_OUT_OF_RANGE: no such record. PLIMSOLL_TRUNCATED: it
// was cut off. PLIMSOLL_STOPPED, _CLOSED: it never will come.
plimsoll_code plimsoll_wait(plimsoll_log *log,
                            uint64_t index,
                            plimsoll_ack level,
                            uint64_t timeout_ns,
                            plimsoll_error *error);

// Has `call` called with `context`, once, when a record is as far as `level` says, or never will be:
// PLIMSOLL_ACK_WRITTEN or PLIMSOLL_ACK_DURABLE. Asks for that, as plimsoll_wait does, and holds up
// nobody. If it has come already, `call` is called before this returns.
//
// Where this fails, `call` is not called. Otherwise it is, at the latest before plimsoll_close or
// plimsoll_free returns: told PLIMSOLL_TRUNCATED, _STOPPED or _CLOSED if the record did not come so
// far. What `context` is to must last until then.
//
// PLIMSOLL_OUT_OF_RANGE: no such record. PLIMSOLL_CLOSED.
plimsoll_code plimsoll_on(plimsoll_log *log,
                          uint64_t index,
                          plimsoll_ack level,
                          plimsoll_call call,
                          void *context,
                          plimsoll_error *error);

// As plimsoll_on, but asks for nothing: `call` is called when the policy, or somebody else, has it so.
// For whoever appends much and wants to hear of it, not to have a sync for each.
plimsoll_code plimsoll_watch(plimsoll_log *log,
                             uint64_t index,
                             plimsoll_ack level,
                             plimsoll_call call,
                             void *context,
                             plimsoll_error *error);

// Makes everything durable that was appended before. index: the last of it, or NULL.
//
// As plimsoll_wait, for ever.
plimsoll_code plimsoll_sync(plimsoll_log *log, uint64_t *index, plimsoll_error *error);

// A reader of records from `from` on, as far as they are written (`level` PLIMSOLL_ACK_WRITTEN, or 0)
// or durable (PLIMSOLL_ACK_DURABLE); then it waits for those that come. Every checksum is verified. It
// holds a file open and 256 KiB, more where records are larger, and never makes an append wait. One that
// has read a mebibyte in order is helped by a thread, and holds 1.3 MiB.
//
// reader: the handle; plimsoll_reader_free it, before or after the log.
//
// PLIMSOLL_OUT_OF_RANGE: there is no such record, and it is not the next one either.
plimsoll_code plimsoll_reader_open(plimsoll_log *log,
                                   uint64_t from,
                                   plimsoll_ack level,
                                   plimsoll_reader **reader,
                                   plimsoll_error *error);

// The next record. timeout_ns: 0 takes what is there, which is how to read a log through;
// otherwise how long to wait for one, or PLIMSOLL_FOREVER.
//
// record->bytes is the reader's, and valid until the next call with this reader: copy what you keep.
//
// PLIMSOLL_AT_END: not there yet; ask again. PLIMSOLL_CLOSED, _STOPPED: everything was read, and no
// more will come. PLIMSOLL_OUT_OF_RANGE: retention or a truncation took it; open another reader.
// PLIMSOLL_TRUNCATED: also what was read last, and others have come in its place; open another reader.
// PLIMSOLL_CORRUPT: durable bytes have changed; the reader stays before them. PLIMSOLL_BUSY: another
// thread is in a call with this reader.
plimsoll_code plimsoll_reader_next(plimsoll_reader *reader,
                                   uint64_t timeout_ns,
                                   plimsoll_record *record,
                                   plimsoll_error *error);

// Frees a reader; NULL is nothing. The last call with it. In a forked child it is leaked.
void plimsoll_reader_free(plimsoll_reader *reader);

// Reads a piece of a record that is written, without the rest of it: its bytes from `offset` on, as many
// as there are or as `len` says. **Not checked**: the checksum covers the whole record, so have checksums
// of your own in what you read so.
//
// bytes: room for `len`, all of which may be written, also where this fails. read: how many there were; 0
// behind the record's end.
//
// PLIMSOLL_OUT_OF_RANGE: it is not written yet, or gone by retention. PLIMSOLL_CORRUPT: it is not where it
// should be.
plimsoll_code plimsoll_read_piece(plimsoll_log *log,
                                  uint64_t index,
                                  uint64_t offset,
                                  void *bytes,
                                  size_t len,
                                  size_t *read,
                                  plimsoll_error *error);

// Removes the oldest segments that hold nothing from `index` on. Whole segments go, so a little more may
// be kept than was asked for; the last one stays, and what is not durable. Durable on return.
// first_index: the oldest record that is left, or NULL.
//
// PLIMSOLL_DISK: what was removed before is gone, the rest is there.
plimsoll_code plimsoll_truncate_before(plimsoll_log *log,
                                       uint64_t index,
                                       uint64_t *first_index,
                                       plimsoll_error *error);

// As plimsoll_truncate_before, but keeps the newest segments, as many as take no more than `bytes`.
plimsoll_code plimsoll_retain_bytes(plimsoll_log *log,
                                    uint64_t bytes,
                                    uint64_t *first_index,
                                    plimsoll_error *error);

// As plimsoll_truncate_before, but keeps what was appended no longer than `age_ns` ago.
plimsoll_code plimsoll_retain_age(plimsoll_log *log,
                                  uint64_t age_ns,
                                  uint64_t *first_index,
                                  plimsoll_error *error);

// Cuts off every record after `last_index`; they never come back, and the next append gets
// last_index + 1. Durable on return, as is everything up to last_index. Appends go on meanwhile, but for
// those to a ring in a file; whoever waits for a record that is cut is told PLIMSOLL_TRUNCATED.
//
// PLIMSOLL_OUT_OF_RANGE: the log begins later. PLIMSOLL_OUT_OF_SPACE, _DISK: no file can be made for what
// follows, and nothing has changed. PLIMSOLL_STOPPED: the disk failed.
plimsoll_code plimsoll_truncate_after(plimsoll_log *log,
                                      uint64_t last_index,
                                      plimsoll_error *error);

// Starts the threads of a crew: for a program with dozens of logs, or with one a tenant. A log by itself
// (plimsoll_open) has four threads and a segment of 64 MiB before its first record; the logs of a crew
// share its threads, which sleep unless a log has something to do, and its ring memory, and begin small.
//
// options: NULL is all defaults. crew: the handle; plimsoll_crew_free it, before or after its logs.
//
// PLIMSOLL_INVALID: options. PLIMSOLL_DISK: a thread cannot be started.
plimsoll_code plimsoll_crew_start(const plimsoll_crew_options *options,
                                  plimsoll_crew **crew,
                                  plimsoll_error *error);

// As plimsoll_open, with the threads and the ring memory of a crew. The log is one like any other, and
// keeps the promises of its own options as if it were alone. A record that is only buffered stays so for
// longer: under PLIMSOLL_POLICY_INTERVAL until the sync that is due for it. None is larger than what the
// crew has (stats.max_record_bytes).
//
// As plimsoll_open. PLIMSOLL_INVALID: also after a fork, in the child.
plimsoll_code plimsoll_crew_open_log(plimsoll_crew *crew,
                                     const char *path,
                                     const plimsoll_options *options,
                                     plimsoll_log **log,
                                     plimsoll_recovery *recovery,
                                     plimsoll_error *error);

// Frees a crew; NULL is nothing. The last call with it. Its logs go on: its threads end when it and the
// last of its logs are gone, closed or freed, and the call that ends them waits for that. In a forked
// child nothing ends.
void plimsoll_crew_free(plimsoll_crew *crew);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PLIMSOLL_H */
