/* iSwitch from C: the worker library's interface for other languages. See iswitch/agent.h for what
 * the operations mean.
 *
 *   iswitch_options options = ISWITCH_OPTIONS_INIT;
 *   options.switch_address = "10.77.0.254";
 *   char error[256];
 *   iswitch_agent *agent = NULL;
 *   if (iswitch_agent_join(&options, &agent, error, sizeof error) != ISWITCH_OK) ...
 *   if (iswitch_all_reduce(agent, in, out, count, ISWITCH_SUM, NULL, error, sizeof error)) ...
 *   iswitch_agent_free(agent);
 *
 * Errors: functions that can fail return an iswitch_error. `error` (may be NULL with size 0) gets
 * one line, cut to `error_size` with its NUL, empty on success. Nothing here exits, aborts, throws,
 * blocks without a deadline or writes to stdout or stderr.
 *
 * Threads: an agent and its operations may be used from several threads; freeing either must be the
 * last use of it. Operations must be issued in the same order on every rank.
 *
 * Growth: structs begin with their own size as the caller was compiled with it; later versions add
 * members at the end and give older callers the defaults. Enumerators keep their values.
 */
#ifndef ISWITCH_H
#define ISWITCH_H

#include <stddef.h>
#include <stdint.h>

#ifndef ISWITCH_API
#define ISWITCH_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct iswitch_agent iswitch_agent;         /* a membership */
typedef struct iswitch_operation iswitch_operation; /* an operation under way or done */

typedef enum iswitch_error {
  ISWITCH_OK = 0,
  ISWITCH_ERROR_NOT_JOINED = 1,  /* no membership (yet, or given up) */
  ISWITCH_ERROR_REFUSED = 2,     /* the switch refused the Join */
  ISWITCH_ERROR_TIMED_OUT = 3,   /* deadline passed; see iswitch_operation_missing */
  ISWITCH_ERROR_JOB_RESET = 4,   /* a member joined, an operator's act, or a restarted switch */
  ISWITCH_ERROR_SWITCH_GONE = 5, /* the switch said so, or does not answer */
  ISWITCH_ERROR_HALTED = 6,      /* the job is halted and the deadline passed */
  ISWITCH_ERROR_MISMATCH = 7,    /* ranks disagree on the operation */
  ISWITCH_ERROR_GONE = 8,        /* the result is no longer kept: this member fell too far behind */
  ISWITCH_ERROR_BAD_ARGUMENT = 9,
  ISWITCH_ERROR_CLOSED = 10,       /* left, freed, or inherited through fork() */
  ISWITCH_ERROR_SYSTEM = 11,       /* the machine refused something: socket, memory */
  ISWITCH_ERROR_ROOT_MISSING = 12, /* a forced broadcast lacks the root's data */
  ISWITCH_ERROR_IN_DOUBT = 13, /* whether a push is in the sums got lost with a restarted switch */
  ISWITCH_PENDING = 100, /* iswitch_operation_wait, iswitch_next: not within the time; no failure */
  ISWITCH_EVENT = 101    /* iswitch_next: an event, no failure */
} iswitch_error;

/* "ok", "timed out", ...; "unknown error" for any other value. Never NULL, never freed. */
ISWITCH_API const char* iswitch_error_name(int error);

/* "0.1.0" */
ISWITCH_API const char* iswitch_version(void);

/* The number in libiswitch-agent.so.N: raised only when something here changes its meaning or goes
 * away. Who loads the library without the linker's check compares it with iswitch_abi_version(). */
#define ISWITCH_ABI_VERSION 0
ISWITCH_API int iswitch_abi_version(void);

#define ISWITCH_ANY_RANK (-1)
#define ISWITCH_ANY_MEMBER (-1)
#define ISWITCH_MEMBER_IS_RANK (-2)

typedef struct iswitch_options {
  size_t size;                /* sizeof(iswitch_options) */
  const char* switch_address; /* IPv4, or IPv4:port; required */
  const char* local_address;  /* IPv4 to bind; NULL: what the route gives */
  const char* key_file;       /* NULL: no key */
  int32_t rank; /* this worker's number in the whole job, or ISWITCH_ANY_RANK: its member id */
  uint16_t job;
  uint16_t local_port;           /* 0: any */
  uint32_t join_timeout_ms;      /* until the job runs */
  uint32_t operation_timeout_ms; /* default deadline of operations */
  uint32_t window_bytes; /* most gradient bytes in flight; 0: what buffers and slots allow */
  uint8_t ecn;           /* 1: ask the network for congestion marks */
  uint8_t caller_driven; /* 1: no thread; the agent moves in iswitch_agent_progress and waits */
  /* Wanted member id at the switch, where that is not the rank: behind a leaf switch of a larger
   * job. Or ISWITCH_ANY_MEMBER. */
  int32_t member;
  /* Above 0: the job is asynchronous, and this the length of its vector, in floats. */
  uint64_t async_elements;
  /* NULL: kernel UDP. Else a DPDK device that this process takes for itself, by which no kernel is
   * on the way: "net_memif0,socket=/run/iswitch/memif.sock,id=2" to a switchd on this host, a PCI
   * address, or any other device string. Needs local_address, an IPv4 of the switch's network that
   * nobody else has, and libiswitch-agent-dpdk.so. */
  const char* device;
  /* For so long after the switch has lost this member's place or has said that it goes, operations
   * wait, each at most until its own deadline, for it to come back, and go on then as if nothing
   * had been. 0: they fail at once. Costs memory: slots x segment_bytes of the job (asynchronous:
   * history x the vector). */
  uint32_t resume_within_ms;
} iswitch_options;

#define ISWITCH_OPTIONS_INIT                                                                  \
  {                                                                                           \
    sizeof(iswitch_options), NULL, NULL, NULL, ISWITCH_ANY_RANK, 1, 0, 30000, 30000, 0, 0, 0, \
        ISWITCH_MEMBER_IS_RANK, 0, NULL, 10000                                                \
  }

/* Joins and waits until the job runs, or fails within join_timeout_ms. *agent is NULL on failure.
 */
ISWITCH_API int iswitch_agent_join(const iswitch_options* options, iswitch_agent** agent,
                                   char* error, size_t error_size);
/* Ends the membership; later operations fail with ISWITCH_ERROR_CLOSED. */
ISWITCH_API int iswitch_agent_leave(iswitch_agent* agent, char* error, size_t error_size);
/* Leaves unless left already, within a short time; operations under way end with
 * ISWITCH_ERROR_CLOSED and still have to be freed. NULL is fine. */
ISWITCH_API void iswitch_agent_free(iswitch_agent* agent);

ISWITCH_API uint16_t iswitch_agent_rank(const iswitch_agent* agent);
ISWITCH_API uint16_t iswitch_agent_member(const iswitch_agent* agent); /* id at its switch */
ISWITCH_API uint16_t iswitch_agent_size(const iswitch_agent* agent);   /* members now */
ISWITCH_API uint16_t iswitch_agent_size_expected(const iswitch_agent* agent);
ISWITCH_API uint32_t iswitch_agent_segment_bytes(const iswitch_agent* agent);
/* Caller-driven agents: moves everything that can be moved, waiting at most wait_us for more. */
ISWITCH_API void iswitch_agent_progress(iswitch_agent* agent, uint64_t wait_us);

/* What an all-reduce makes of the vectors; passed as int. */
typedef enum iswitch_reduce { ISWITCH_SUM = 0, ISWITCH_MEAN = 1 } iswitch_reduce;

typedef struct iswitch_operation_options {
  size_t size;        /* sizeof(iswitch_operation_options) */
  int64_t timeout_ms; /* below 0: the agent's operation_timeout_ms */
  uint32_t tag;       /* must be equal on all ranks; a mismatch fails the operation */
} iswitch_operation_options;

#define ISWITCH_OPERATION_OPTIONS_INIT \
  { sizeof(iswitch_operation_options), -1, 0 }

/* Start an operation. The vectors must live until it is done. `input` and `output` are the same or
 * disjoint; any length, any alignment of float. `options` may be NULL. On ISWITCH_OK *operation is
 * to be freed with iswitch_operation_free; what goes wrong later is told by iswitch_operation_wait.
 */
ISWITCH_API int iswitch_all_reduce_start(iswitch_agent* agent, const float* input, float* output,
                                         size_t count, int reduce,
                                         const iswitch_operation_options* options,
                                         iswitch_operation** operation, char* error,
                                         size_t error_size);
ISWITCH_API int iswitch_broadcast_start(iswitch_agent* agent, float* data, size_t count,
                                        uint16_t root, const iswitch_operation_options* options,
                                        iswitch_operation** operation, char* error,
                                        size_t error_size);
ISWITCH_API int iswitch_barrier_start(iswitch_agent* agent,
                                      const iswitch_operation_options* options,
                                      iswitch_operation** operation, char* error,
                                      size_t error_size);

/* 1 when done, well or not. */
ISWITCH_API int iswitch_operation_done(const iswitch_operation* operation);
/* The operation's outcome, or ISWITCH_PENDING after timeout_ms; below 0: as long as it takes, which
 * is bounded by the operation's own deadline. May be called again. */
ISWITCH_API int iswitch_operation_wait(iswitch_operation* operation, int64_t timeout_ms,
                                       char* error, size_t error_size);
/* Members that had not contributed to an operation that timed out, as far as the switch could tell:
 * fills at most `capacity` ids and gives how many there are. */
ISWITCH_API size_t iswitch_operation_missing(const iswitch_operation* operation, uint16_t* members,
                                             size_t capacity);
/* Once done: 1 when some segment was completed before its threshold was met. */
ISWITCH_API int iswitch_operation_partial(const iswitch_operation* operation);
/* Once done: fewest workers in any segment's sum. */
ISWITCH_API uint32_t iswitch_operation_smallest_workers(const iswitch_operation* operation);
/* Forgets the operation without cancelling it. NULL is fine. */
ISWITCH_API void iswitch_operation_free(iswitch_operation* operation);

/* Start and wait in one. */
ISWITCH_API int iswitch_all_reduce(iswitch_agent* agent, const float* input, float* output,
                                   size_t count, int reduce,
                                   const iswitch_operation_options* options, char* error,
                                   size_t error_size);
ISWITCH_API int iswitch_broadcast(iswitch_agent* agent, float* data, size_t count, uint16_t root,
                                  const iswitch_operation_options* options, char* error,
                                  size_t error_size);
ISWITCH_API int iswitch_barrier(iswitch_agent* agent, const iswitch_operation_options* options,
                                char* error, size_t error_size);

/* Asynchronous jobs (iswitch_options.async_elements): workers do not wait for each other. Each
 * pushes gradients, and all take the same updates, segment by segment in order, so that weights to
 * which they are applied stay equal. */

/* Like the other start functions; `count` is async_elements. The gradient must live until the
 * operation is done: when all of it has become part of updates. */
ISWITCH_API int iswitch_push_start(iswitch_agent* agent, const float* gradient, size_t count,
                                   const iswitch_operation_options* options,
                                   iswitch_operation** operation, char* error, size_t error_size);

/* The pushes under way fail (ISWITCH_ERROR_TIMED_OUT) and nothing of them is sent any more. Parts
 * of them may be summed yet. */
ISWITCH_API void iswitch_give_up_pushes(iswitch_agent* agent);

/* Asks for a Reset of the job, synchronous or not: what is under way fails at all members with
 * ISWITCH_ERROR_JOB_RESET, and they begin again together. Returns at once. */
ISWITCH_API void iswitch_request_reset(iswitch_agent* agent);

/* The sum of some workers' pushes in one segment of the vector. */
typedef struct iswitch_update {
  size_t size;      /* sizeof(iswitch_update), set by the caller */
  float* values;    /* the caller's memory for one segment: segment_bytes / 4 floats */
  size_t capacity;  /* floats there */
  size_t count;     /* floats filled in */
  uint64_t first;   /* element of the vector that values[0] belongs to */
  uint32_t segment; /* numbers count segment by segment */
  uint32_t number;  /* grows by one, wraps at 32 bits */
  uint16_t workers; /* contributions in the sum, at least 1: divide by it for the mean */
  uint8_t partial;  /* 1: forced before the threshold was met */
} iswitch_update;

/* Why this member's weights do not follow from the updates any more. */
typedef enum iswitch_event_kind {
  ISWITCH_EVENT_JOINED = 0, /* the job was at work already when this member joined */
  ISWITCH_EVENT_GONE = 1,   /* an update was missed that the switch no longer keeps */
  ISWITCH_EVENT_RESET = 2   /* the job was reset: all take the weights of one of them */
} iswitch_event_kind;

typedef struct iswitch_event {
  size_t size;         /* sizeof(iswitch_event), set by the caller */
  int kind;            /* iswitch_event_kind */
  uint32_t base_round; /* that iswitch_resume wants */
  uint8_t untouched;   /* JOINED: no update has been made since base_round */
} iswitch_event;

/* From one thread at a time. Waits at most timeout_ms for the next update or event. ISWITCH_OK:
 * *update is filled in. ISWITCH_EVENT: *event is, and `error` has its text; no update comes, and
 * pushes fail, until iswitch_resume. ISWITCH_PENDING: neither came. */
ISWITCH_API int iswitch_next(iswitch_agent* agent, int64_t timeout_ms, iswitch_update* update,
                             iswitch_event* event, char* error, size_t error_size);
/* Numbers of the last update taken, one a segment: fills at most `capacity` and gives how many
 * there are. Between an event and iswitch_resume: *base_round for all. */
ISWITCH_API size_t iswitch_numbers(const iswitch_agent* agent, uint32_t* base_round,
                                   uint32_t* numbers, size_t capacity);
/* The caller's weights contain the updates up to these numbers; newer ones come from now on. */
ISWITCH_API int iswitch_resume(iswitch_agent* agent, uint32_t base_round, const uint32_t* numbers,
                               size_t count, char* error, size_t error_size);

typedef struct iswitch_statistics {
  size_t size; /* sizeof(iswitch_statistics), set by the caller */
  uint64_t contributions_sent, retransmissions, results, duplicate_results;
  uint64_t gradient_bytes_sent, gradient_bytes_received;
  uint64_t operations_done, operations_failed, resets;
  uint64_t send_calls, receive_calls; /* system calls */
  uint64_t smoothed_rtt_ns, retransmit_timeout_ns;
  uint64_t ecn_marks; /* results that told of congestion */
  uint32_t window_bytes;
  uint64_t updates, helps; /* asynchronous: taken, and asked for again since they were missed */
  uint64_t resumes;        /* how often the job went on after its switch had restarted */
} iswitch_statistics;

/* Fills as much of *statistics as its `size` says there is room for. */
ISWITCH_API int iswitch_agent_statistics(const iswitch_agent* agent,
                                         iswitch_statistics* statistics);

#ifdef __cplusplus
}
#endif

#endif
