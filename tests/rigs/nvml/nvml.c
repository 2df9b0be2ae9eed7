/*
 * A card made of C: a libnvidia-ml.so.1 that answers pynvml from a text file (state.h has its format).
 *
 * The names, structures and error numbers are those that pynvml looks up. A function that is missing here
 * is FunctionNotFound there, which is what a driver too old for it says too.
 */
#include "ledger.h"

struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned int version; unsigned long long total, reserved, free, used; };
struct pci { char legacy_id[16]; unsigned int domain, bus, device, device_id, subsystem_id; char bus_id[32]; };
struct process { unsigned int pid; unsigned long long used_bytes; unsigned int gpu_instance, compute_instance; };

/* The size of the structure and a 2: what a caller has to put into `version`. */
#define MEMORY_V2 ((unsigned int)(sizeof(struct memory_v2) | (2u << 24)))
_Static_assert(MEMORY_V2 == 0x02000028u, "memory_v2 is not laid out as pynvml's c_nvmlMemory_v2_t");
_Static_assert(sizeof(struct pci) == 68, "pci is not laid out as pynvml's nvmlPciInfo_t");
_Static_assert(sizeof(struct process) == 24, "process is not laid out as pynvml's c_nvmlProcessInfo_v3_t");

/* ---- the library and the system ---- */

static int initialise(const char *function)
{
    struct call call;

    load_state(&call);
    aim(&call, NO_CARD, WHOLE_CARD);
    log_call(&call, function);
    int error = fault(&call, function);
    if (!error)
        atomic_fetch_add(&init_count, 1);
    return error;
}

int nvmlInit_v2(void) { return initialise(__func__); }
int nvmlInitWithFlags(unsigned int flags) { (void)flags; return initialise(__func__); }

int nvmlShutdown(void)
{
    struct call call;
    int error = enter(&call, __func__, NO_CARD, WHOLE_CARD);

    if (!error)
        atomic_fetch_sub(&init_count, 1);
    return error;
}

const char *nvmlErrorString(int error)
{
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power",
        "Driver Not Loaded", "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found",
        "Function Not Found", "Corrupted infoROM", "GPU is lost", "GPU requires reset",
        "GPU access blocked by the operating system", "Driver/library version mismatch",
        "In use by another client", "Insufficient Memory", "No data", "vGPU ECC Not Supported",
        "Insufficient Resources", "Frequency Not Supported", "Argument version mismatch", "Deprecated",
        "Not Ready", "GPU Not Found", "Invalid State", "Reset Type Not Supported",
    };

    return error >= 0 && error < (int)(sizeof texts / sizeof *texts) ? texts[error] : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *version, unsigned int size)
{
    struct call call;
    int error = enter(&call, __func__, NO_CARD, WHOLE_CARD);

    return error ? error : read_text(find(&call, "driver_version"), version, size);
}

static int cuda_driver_version(const char *function, int *version)
{
    struct call call;
    unsigned long long number = 0;
    int error = enter(&call, function, NO_CARD, WHOLE_CARD);

    if (!error && !(error = read_number(find(&call, "cuda_driver_version"), &number)))
        *version = (int)number;
    return error;
}

int nvmlSystemGetCudaDriverVersion(int *version) { return cuda_driver_version(__func__, version); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { return cuda_driver_version(__func__, version); }

/* ---- which card, which slice ---- */

int nvmlDeviceGetCount_v2(unsigned int *cards)
{
    struct call call;
    int error = enter(&call, __func__, NO_CARD, WHOLE_CARD);

    if (!error)
        *cards = count_or_zero(find(&call, "cards"));
    return error;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    struct call call;
    int error = enter(&call, __func__, index < CARDS_MAX ? (int)index : NO_CARD, WHOLE_CARD);

    if (!error && !exists(&call))
        error = NVML_INVALID_ARGUMENT;
    if (!error)
        *device = handle_of(call.card, WHOLE_CARD);
    return error;
}

static void aim_at_uuid(struct call *call, const char *uuid)
{
    for (int card = 0; card < CARDS_MAX; card++)
        for (int slice = WHOLE_CARD; slice < SLICES_MAX; slice++) {
            char own[KEY_SIZE];

            aim(call, card, slice);
            if (exists(call) && !read_text(field(call, "uuid"), own, sizeof own) && !strcmp(own, uuid))
                return;
        }
    aim(call, NO_CARD, WHOLE_CARD);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    struct call call;

    load_state(&call);
    aim_at_uuid(&call, uuid ? uuid : "");
    int error = admit(&call, __func__);
    if (!error && call.card == NO_CARD)
        error = uuid ? NVML_NOT_FOUND : NVML_INVALID_ARGUMENT;
    if (!error)
        *device = handle_of(call.card, call.slice);
    return error;
}

/* Aims at the slice, so that a fault can refuse one of them. */
int nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *slice)
{
    struct call call;
    int card, parent_slice;

    place_of(device, &card, &parent_slice);
    int error = enter(&call, __func__, card, index < SLICES_MAX ? (int)index : SLICES_MAX);
    if (!error && (card == NO_CARD || parent_slice != WHOLE_CARD))
        error = NVML_INVALID_ARGUMENT;
    if (!error && !exists(&call))
        error = NVML_NOT_FOUND;
    if (!error)
        *slice = handle_of(card, call.slice);
    return error;
}

int nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_slice)
{
    struct call call;
    int error = enter_device(&call, __func__, device);

    if (!error)
        *is_slice = call.slice != WHOLE_CARD;
    return error;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t slice, nvmlDevice_t *device)
{
    struct call call;
    int error = enter_device(&call, __func__, slice);

    if (!error && call.slice == WHOLE_CARD)
        error = NVML_INVALID_ARGUMENT;
    if (!error)
        *device = handle_of(call.card, WHOLE_CARD);
    return error;
}

/* Of a slice it is the index below its card, the one that nvmlDeviceGetMigDeviceHandleByIndex takes. */
int nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    struct call call;
    int error = enter_device(&call, __func__, device);

    if (!error)
        *index = (unsigned int)(call.slice == WHOLE_CARD ? call.card : call.slice);
    return error;
}

int nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    struct call call;
    unsigned long long mode = 0;
    int error = enter_whole_card(&call, __func__, device);

    if (!error && !(error = read_number(field(&call, "mig_mode"), &mode)))
        *current = *pending = (unsigned int)mode;
    return error;
}

/* How many there can be, not how many there are: a caller has to go on at NOT_FOUND. */
int nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *slices)
{
    struct call call;
    int error = enter_whole_card(&call, __func__, device);

    if (!error)
        *slices = count_or_zero(field(&call, "mig_max"));
    return error;
}

/* ---- what a card or a slice says of itself ---- */

static int device_text(const char *function, nvmlDevice_t device, const char *name, char *buffer, unsigned int size)
{
    struct call call;
    int error = enter_device(&call, function, device);

    return error ? error : read_text(field(&call, name), buffer, size);
}

int nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int size)
{
    return device_text(__func__, device, "uuid", uuid, size);
}

int nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int size)
{
    return device_text(__func__, device, "name", name, size);
}

int nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    char text[KEY_SIZE];
    int error = device_text(__func__, device, "compute_capability", text, sizeof text);

    return error || sscanf(text, "%d.%d", major, minor) == 2 ? error : NVML_NOT_SUPPORTED;
}

int nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, struct pci *pci)
{
    struct pci answer = { .domain = 0 };
    int error = device_text(__func__, device, "pci_bus_id", answer.bus_id, sizeof answer.bus_id);

    if (!error && sscanf(answer.bus_id, "%x:%x:%x", &answer.domain, &answer.bus, &answer.device) != 3)
        error = NVML_NOT_SUPPORTED;
    if (error)
        return error;
    snprintf(answer.legacy_id, sizeof answer.legacy_id, "%04X:%02X:%02X.0", answer.domain & 0xffff,
             answer.bus & 0xff, answer.device & 0xff);
    *pci = answer;
    return NVML_SUCCESS;
}

/* ---- memory ---- */

static int total_and_free(struct call *call, unsigned long long *total, unsigned long long *free)
{
    int error = read_number(field(call, "total_bytes"), total);

    return error ? error : free_now(call, free);
}

static unsigned long long used(struct call *call, unsigned long long total, unsigned long long not_used)
{
    unsigned long long own;

    if (!read_number(field(call, "used_bytes"), &own))
        return own;
    return total > not_used ? total - not_used : 0;
}

int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct memory *memory)
{
    struct call call;
    int error = enter_device(&call, __func__, device);

    if (!error)
        error = total_and_free(&call, &memory->total, &memory->free);
    if (!error)
        memory->used = used(&call, memory->total, memory->free);
    return error;
}

int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct memory_v2 *memory)
{
    struct call call;
    int error = enter_device(&call, __func__, device);

    if (!error)
        error = total_and_free(&call, &memory->total, &memory->free);
    if (!error && read_number(field(&call, "reserved_bytes"), &memory->reserved))
        error = NVML_FUNCTION_NOT_FOUND;
    if (!error && memory->version != MEMORY_V2)
        error = NVML_ARGUMENT_VERSION_MISMATCH;
    if (!error)
        memory->used = used(&call, memory->total, memory->free + memory->reserved);
    return error;
}

/* The state's list of that name, then `held`; in a container or in WSL a driver tells other pids or no bytes. */
static int read_processes(const struct call *call, const char *list, const struct entry *held, unsigned int living,
                          struct process *processes)
{
    unsigned int listed = count_or_zero(field(call, list)), offset = count_or_zero(field(call, "pid_offset"));
    int hidden = field(call, "process_bytes_hidden") != NULL;

    for (unsigned int i = 0; i < listed + living; i++) {
        char name[32];
        struct process process = { 0, 0, UINT32_MAX, UINT32_MAX };

        snprintf(name, sizeof name, "%.*s.%u", (int)strlen(list) - 2, list, i);
        const char *value = i < listed ? field(call, name) : NULL;
        if (i < listed && (!value || sscanf(value, "%u %llu", &process.pid, &process.used_bytes) != 2))
            return -1;
        if (i >= listed) {
            process.pid = held[i - listed].pid + offset;
            process.used_bytes = held[i - listed].bytes;
        }
        if (hidden)
            process.used_bytes = UINT64_MAX;
        processes[i] = process;
    }
    return (int)(listed + living);
}

static int running_processes(const char *function, nvmlDevice_t device, const char *list, int with_ledger,
                             unsigned int *size, struct process *processes)
{
    struct call call;
    struct entry held[LEDGER_ENTRIES];
    struct process all[LEDGER_ENTRIES + STATE_PROCESSES];
    int error = enter_device(&call, function, device);
    unsigned int room = *size;

    if (error)
        return error;
    int count = read_processes(&call, list, held, with_ledger ? (unsigned int)ledger_held(&call, held) : 0, all);
    if (count < 0)
        return NVML_NOT_SUPPORTED;
    *size = (unsigned int)count;
    if (*size > room || (*size && !processes))
        return NVML_INSUFFICIENT_SIZE;
    if (*size)
        memcpy(processes, all, *size * sizeof *all);
    return NVML_SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *size, struct process *processes)
{
    return running_processes(__func__, device, "processes", 1, size, processes);
}

/* Those that draw; nobody does through CUDA. */
int nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *size, struct process *processes)
{
    return running_processes(__func__, device, "graphics_processes", 0, size, processes);
}
