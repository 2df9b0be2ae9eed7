/*
 * What living processes hold on the rig's cards: cuda.c writes it, nvml.c takes it off the free memory.
 *
 * The ledger lies beside the state, "<state>.ledger": an array of entries, one a process and device. Who owns
 * one holds a lock on its byte, which the kernel drops when the process ends in whatever way: an entry
 * without a lock is nobody's, and what stands in it was given back. A driver does that some time later: with
 * the state's "release_ms N" the memory counts for N ms more, from the moment when somebody first looked.
 */
#pragma once
#include "state.h"

#include <sys/types.h>

enum { LEDGER_ENTRIES = 256 };
/* One byte far behind the entries: whoever changes an entry holds its lock. */
#define LEDGER_TURN ((off_t)1 << 20)

struct entry { uint32_t pid; int32_t card, slice; uint32_t unused; uint64_t bytes, gone_ms; };

/* F_OFD_SETLK and its like are of Linux; the numbers stand here so that no macro of glibc's is needed. */
enum { GET_LOCK = 36, SET_LOCK = 37, WAIT_FOR_LOCK = 38 };

static inline int ledger_lock(int file, int command, short type, off_t where)
{
    struct flock lock = { .l_type = type, .l_whence = SEEK_SET, .l_start = where, .l_len = 1 };
    int outcome;

    do
        outcome = fcntl(file, command, &lock);
    while (outcome && errno == EINTR);
    return command == GET_LOCK ? !outcome && lock.l_type != F_UNLCK : !outcome;
}

/* The ledger of this state; -1 where nobody has allocated yet and `flags` do not create it. */
static inline int ledger_open(int flags)
{
    char path[4096];
    const char *state = getenv("ZENIT_RIG_NVML_STATE");

    snprintf(path, sizeof path, "%s.ledger", state ? state : "");
    return state ? open(path, flags | O_CLOEXEC, 0666) : -1;
}

static inline uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Whether the entry still takes memory, its owner living or only just gone. */
static inline int ledger_counts(int file, int number, struct entry *entry, uint64_t release_ms)
{
    if (!entry->bytes || ledger_lock(file, GET_LOCK, F_WRLCK, number))
        return entry->bytes != 0;
    if (!entry->gone_ms) {
        entry->gone_ms = now_ms();
        if (pwrite(file, &entry->gone_ms, sizeof entry->gone_ms,
                   (off_t)((size_t)number * sizeof *entry + offsetof(struct entry, gone_ms))) < 0)
            give_up("write the ledger of ZENIT_RIG_NVML_STATE", getenv("ZENIT_RIG_NVML_STATE"));
    }
    return now_ms() - entry->gone_ms < release_ms;
}

/* Fills `held` with the entries that count on the call's target; a slice's are also its card's. */
static inline int ledger_held(const struct call *call, struct entry held[LEDGER_ENTRIES])
{
    struct entry all[LEDGER_ENTRIES];
    unsigned long long release_ms = 0;
    int count = 0, file = ledger_open(O_RDWR);
    ssize_t size = file < 0 ? 0 : pread(file, all, sizeof all, 0);

    read_number(find(call, "release_ms"), &release_ms);
    for (int i = 0; i < (int)(size / (ssize_t)sizeof *all); i++)
        if (all[i].card == call->card && (call->slice == WHOLE_CARD || all[i].slice == call->slice) &&
            ledger_counts(file, i, &all[i], release_ms))
            held[count++] = all[i];
    if (file >= 0)
        close(file);
    return count;
}

/* The target's free memory: what the state says less what living processes hold. */
static inline int free_now(const struct call *call, unsigned long long *free)
{
    struct entry held[LEDGER_ENTRIES];
    int error = read_number(field(call, "free_bytes"), free);

    for (int i = error ? 0 : ledger_held(call, held); i-- > 0;)
        *free = *free > held[i].bytes ? *free - held[i].bytes : 0;
    return error;
}
