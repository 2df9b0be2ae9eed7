/*
 * A driver made of C: a libcuda.so.1 whose allocations take memory of the NVML rig's cards.
 *
 * It has what a program needs to hold memory on a device, and no more. What a process holds, its contexts
 * included, stands in the ledger of the state that ZENIT_RIG_NVML_STATE names (../nvml/ledger.h) and ends with
 * the process. Devices are the cards in NVML's order, or those that CUDA_VISIBLE_DEVICES names.
 *
 * Further fields of a device, for this library alone:
 *
 *     0.context_bytes 524288000   (what a process's context takes; absent: nothing)
 *     0.granularity_bytes 2097152 (an allocation takes a multiple of it; absent: 2 MiB)
 *     0.cuda_hidden_bytes 1       (what CUDA says less of free memory than NVML)
 *
 * Faults are the state's, with CUDA's error numbers: "fault.cuMemAlloc_v2.0 2 0".
 */
#include "../nvml/ledger.h"

#include <pthread.h>

enum {
    CUDA_SUCCESS = 0, CUDA_INVALID_VALUE = 1, CUDA_OUT_OF_MEMORY = 2, CUDA_NOT_INITIALIZED = 3,
    CUDA_NO_DEVICE = 100, CUDA_INVALID_DEVICE = 101, CUDA_INVALID_CONTEXT = 201,
};
enum { DEVICES_MAX = CARDS_MAX, NO_ENTRY = -1, DEFAULT_GRANULARITY = 2 << 20 };

/* The primary context of a device, the only one there is; its address is the handle. */
typedef struct context { int card, slice, entry; uint64_t users, own_bytes, held_bytes; } *CUcontext;
typedef unsigned long long CUdeviceptr;
typedef struct { char bytes[16]; } CUuuid;
struct allocation { CUdeviceptr pointer; uint64_t bytes; CUcontext owner; struct allocation *next; };

static pthread_mutex_t one_thread = PTHREAD_MUTEX_INITIALIZER;
static struct context devices[DEVICES_MAX];
static int device_count = -1, ledger = -1;
static struct allocation *allocations;
static CUdeviceptr next_pointer = 0x7f0000000000;
static _Thread_local CUcontext current;

/* ---- the ledger ---- */

static _Noreturn void give_up_ledger(void)
{
    give_up("use the ledger of ZENIT_RIG_NVML_STATE", getenv("ZENIT_RIG_NVML_STATE"));
}

/* A forked child owns nothing on a device, and must not keep its parent's locks alive. */
static void forget_in_child(void)
{
    if (ledger >= 0)
        close(ledger);
    ledger = device_count = -1;
    allocations = NULL;
    current = NULL;
    memset(devices, 0, sizeof devices);
    pthread_mutex_init(&one_thread, NULL);
}

static int is_ours(int number)
{
    for (int i = 0; i < device_count; i++)
        if (devices[i].entry == number)
            return 1;
    return 0;
}

/* An entry of which nothing counts any longer, with its lock. */
static int claim_entry(uint64_t release_ms)
{
    for (int i = 0; i < LEDGER_ENTRIES; i++) {
        struct entry entry = { 0 };

        if (is_ours(i) || pread(ledger, &entry, sizeof entry, (off_t)i * (off_t)sizeof entry) < 0)
            continue;
        if (!ledger_counts(ledger, i, &entry, release_ms) && ledger_lock(ledger, SET_LOCK, F_WRLCK, i))
            return i;
    }
    return NO_ENTRY;
}

/* Takes `bytes` more (or gives them back) in the name of this process, if the target has them free. */
static int move(const struct call *call, CUcontext context, int64_t bytes)
{
    unsigned long long free_bytes = 0, release_ms = 0;
    int error = CUDA_OUT_OF_MEMORY;

    read_number(find(call, "release_ms"), &release_ms);
    if (!ledger_lock(ledger, WAIT_FOR_LOCK, F_WRLCK, LEDGER_TURN))
        give_up_ledger();
    if (bytes <= 0 || (!free_now(call, &free_bytes) && free_bytes >= (uint64_t)bytes)) {
        if (context->entry == NO_ENTRY && (context->entry = claim_entry(release_ms)) == NO_ENTRY)
            give_up_ledger();
        context->held_bytes += (uint64_t)bytes;
        struct entry entry = { (uint32_t)getpid(), context->card, context->slice, 0, context->held_bytes, 0 };
        if (pwrite(ledger, &entry, sizeof entry, (off_t)context->entry * (off_t)sizeof entry) != sizeof entry)
            give_up_ledger();
        error = CUDA_SUCCESS;
    }
    ledger_lock(ledger, SET_LOCK, F_UNLCK, LEDGER_TURN);
    return error;
}

/* ---- which devices ---- */

static int target_exists(struct call *call, int card, int slice)
{
    aim(call, card, slice);
    return exists(call);
}

static void see(struct call *call, int card, int slice)
{
    /* CUDA reaches a card that is cut by its slices alone, and takes the first. */
    if (slice == WHOLE_CARD && target_exists(call, card, 0))
        slice = 0;
    devices[device_count++] = (struct context){ .card = card, .slice = slice, .entry = NO_ENTRY };
}

static void see_named(struct call *call, const char *name, size_t length)
{
    for (int card = 0; card < CARDS_MAX; card++)
        for (int slice = WHOLE_CARD; slice < SLICES_MAX; slice++) {
            char own[KEY_SIZE], number[16];

            if (!target_exists(call, card, slice) || read_text(field(call, "uuid"), own, sizeof own))
                continue;
            snprintf(number, sizeof number, "%d", card);
            int by_number = slice == WHOLE_CARD && strlen(number) == length && !strncmp(number, name, length);
            if (by_number || (length > 4 && !strncmp(own, name, length))) {
                see(call, card, slice);
                return;
            }
        }
}

static void see_all(struct call *call)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    device_count = 0;
    for (int card = 0; !visible && card < CARDS_MAX && target_exists(call, card, WHOLE_CARD); card++)
        see(call, card, WHOLE_CARD);
    while (visible && *visible) {
        size_t length = strcspn(visible, ",");

        if (device_count < DEVICES_MAX)
            see_named(call, visible, length);
        visible += length + (visible[length] == ',');
    }
}

int cuInit(unsigned int flags)
{
    struct call call;

    load_state(&call);
    aim(&call, NO_CARD, WHOLE_CARD);
    log_call(&call, __func__);
    int error = fault(&call, __func__);
    if (error || flags)
        return error ? error : CUDA_INVALID_VALUE;
    pthread_mutex_lock(&one_thread);
    if (device_count < 0) {
        pthread_atfork(NULL, NULL, forget_in_child);
        see_all(&call);
        if ((ledger = ledger_open(O_RDWR | O_CREAT)) < 0)
            give_up_ledger();
    }
    pthread_mutex_unlock(&one_thread);
    return device_count ? CUDA_SUCCESS : CUDA_NO_DEVICE;
}

/* What every further call does first. `device` is the ordinal; the call aims at its card or slice. */
static int begin(struct call *call, const char *function, int device)
{
    load_state(call);
    if (device_count <= 0)
        return CUDA_NOT_INITIALIZED;
    if (device < 0 || device >= device_count)
        return CUDA_INVALID_DEVICE;
    aim(call, devices[device].card, devices[device].slice);
    log_call(call, function);
    return fault(call, function);
}

static int begin_current(struct call *call, const char *function)
{
    int error = begin(call, function, current ? (int)(current - devices) : 0);

    return error || current ? error : CUDA_INVALID_CONTEXT;
}

int cuDriverGetVersion(int *version)
{
    struct call call;
    unsigned long long number = 0;

    load_state(&call);
    read_number(find(&call, "cuda_driver_version"), &number);
    *version = (int)number;
    return CUDA_SUCCESS;
}

int cuDeviceGetCount(int *count)
{
    *count = device_count;
    return device_count < 0 ? CUDA_NOT_INITIALIZED : CUDA_SUCCESS;
}

int cuDeviceGet(int *device, int ordinal)
{
    struct call call;
    int error = begin(&call, __func__, ordinal);

    if (!error)
        *device = ordinal;
    return error;
}

int cuDeviceGetName(char *name, int size, int device)
{
    struct call call;
    int error = begin(&call, __func__, device);

    return error || !read_text(field(&call, "name"), name, (unsigned int)size) ? error : CUDA_INVALID_VALUE;
}

/* The hexadecimal digits of the state's UUID as 16 bytes; what is missing is zero. */
int cuDeviceGetUuid_v2(CUuuid *uuid, int device)
{
    struct call call;
    char text[KEY_SIZE] = "";
    int error = begin(&call, __func__, device), digits = 0;

    memset(uuid, 0, sizeof *uuid);
    if (!error)
        read_text(field(&call, "uuid"), text, sizeof text);
    for (const char *at = strchr(text, '-'); !error && at && *at && digits < 32; at++) {
        const char *place = strchr("0123456789abcdef", *at);

        if (place) {
            int value = (int)(place - "0123456789abcdef");
            uuid->bytes[digits / 2] = (char)(uuid->bytes[digits / 2] | (digits % 2 ? value : value << 4));
            digits++;
        }
    }
    return error;
}

static int total_memory(const struct call *call, size_t *bytes)
{
    unsigned long long total = 0, reserved = 0;
    int error = read_number(field(call, "total_bytes"), &total);

    read_number(field(call, "reserved_bytes"), &reserved);
    *bytes = total - reserved;
    return error ? CUDA_INVALID_VALUE : CUDA_SUCCESS;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    struct call call;
    int error = begin(&call, __func__, device);

    return error ? error : total_memory(&call, bytes);
}

/* ---- contexts ---- */

int cuDevicePrimaryCtxRetain(CUcontext *context, int device)
{
    struct call call;
    unsigned long long own = 0;
    int error = begin(&call, __func__, device);

    if (error)
        return error;
    pthread_mutex_lock(&one_thread);
    *context = &devices[device];
    read_number(field(&call, "context_bytes"), &own);
    if (!(*context)->users && !(error = move(&call, *context, (int64_t)own)))
        (*context)->own_bytes = own;
    if (!error)
        (*context)->users++;
    pthread_mutex_unlock(&one_thread);
    return error;
}

static void give_back(const struct call *call, CUcontext context)
{
    for (struct allocation **at = &allocations; *at;) {
        struct allocation *gone = *at;

        if (gone->owner == context) {
            *at = gone->next;
            free(gone);
        } else {
            at = &gone->next;
        }
    }
    move(call, context, -(int64_t)context->held_bytes);
    ledger_lock(ledger, SET_LOCK, F_UNLCK, context->entry);
    context->entry = NO_ENTRY;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    struct call call;
    int error = begin(&call, __func__, device);

    if (error)
        return error;
    pthread_mutex_lock(&one_thread);
    if (!devices[device].users)
        error = CUDA_INVALID_CONTEXT;
    else if (!--devices[device].users)
        give_back(&call, &devices[device]);
    pthread_mutex_unlock(&one_thread);
    return error;
}

int cuCtxSetCurrent(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

/* ---- memory ---- */

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    struct call call;
    unsigned long long now = 0, hidden = 0;
    int error = begin_current(&call, __func__);

    if (error || (error = total_memory(&call, total_bytes)))
        return error;
    read_number(field(&call, "cuda_hidden_bytes"), &hidden);
    error = free_now(&call, &now) ? CUDA_INVALID_VALUE : CUDA_SUCCESS;
    *free_bytes = now > hidden ? now - hidden : 0;
    return error;
}

int cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    struct call call;
    unsigned long long step = DEFAULT_GRANULARITY;
    int error = begin_current(&call, __func__);

    if (error || !bytes)
        return error ? error : CUDA_INVALID_VALUE;
    read_number(field(&call, "granularity_bytes"), &step);
    uint64_t taken = (bytes + step - 1) / step * step;
    struct allocation *fresh = malloc(sizeof *fresh);
    pthread_mutex_lock(&one_thread);
    error = fresh ? move(&call, current, (int64_t)taken) : CUDA_OUT_OF_MEMORY;
    if (!error) {
        *fresh = (struct allocation){ next_pointer, taken, current, allocations };
        allocations = fresh;
        *pointer = next_pointer;
        next_pointer += taken;
    }
    pthread_mutex_unlock(&one_thread);
    if (error)
        free(fresh);
    return error;
}

int cuMemFree_v2(CUdeviceptr pointer)
{
    struct call call;
    int error = begin_current(&call, __func__);

    if (error || !pointer)
        return error;
    pthread_mutex_lock(&one_thread);
    struct allocation **at = &allocations;
    while (*at && (*at)->pointer != pointer)
        at = &(*at)->next;
    if (*at) {
        struct allocation *gone = *at;

        *at = gone->next;
        move(&call, gone->owner, -(int64_t)gone->bytes);
        free(gone);
    } else {
        error = CUDA_INVALID_VALUE;
    }
    pthread_mutex_unlock(&one_thread);
    return error;
}

int cuGetErrorName(int error, const char **name)
{
    static const struct { int error; const char *name; } names[] = {
        { CUDA_SUCCESS, "CUDA_SUCCESS" }, { CUDA_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE" },
        { CUDA_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY" }, { CUDA_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED" },
        { CUDA_NO_DEVICE, "CUDA_ERROR_NO_DEVICE" }, { CUDA_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE" },
        { CUDA_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT" },
    };

    *name = "CUDA_ERROR_UNKNOWN";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].error == error)
            *name = names[i].name;
    return CUDA_SUCCESS;
}
