/* Takes CUPTI's activity buffers in a process and writes them to a recording. No thread of it needs Python.
 *
 * CUPTI asks for buffers on the program's threads, inside CUDA calls, and hands them back on threads of its
 * own, also while the process ends. A callback in Python would wait there for the interpreter's lock, which a
 * thread may hold that waits for CUPTI in turn. So buffers come from a bounded pool here, and one thread
 * writes what comes back: first the texts that a buffer points to, then the buffer.
 *
 * Files: core/recording_format.py. Structures of CUPTI that are read here are the same in all versions from
 * 11.8 to 13.5: the kind at the start of a record, CUpti_ActivityAPI, CUpti_ResourceData, CUpti_GraphData,
 * CUpti_StateData. Where a kernel's name lies in its record is told by the caller, for the version in use.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define HEAD 4096          /* what lies before a buffer's bytes */
#define MOST_BUFFERS 4096
#define KINDS 256
#define LAYOUTS 4         /* of a kind, where the version does not decide */
#define TEXTS 4           /* of a record */
#define MOST_NAME 32768    /* bytes of a text; the rest is cut */
#define MOST_NAMES (1u << 20)
#define NODES 4096         /* graph nodes that wait to be written */
#define THREADS 4096

/* The header of a buffer in cupti.raw. */
struct head {
  char magic[8];
  uint64_t valid, time;
  uint32_t context, stream;
};

struct buffer {
  struct buffer* next;
  size_t valid;
  uint64_t time;
};

struct name {
  uint64_t address, hash, seen; /* seen: the number of the last buffer that pointed to it */
};

struct node {
  uint64_t time, node, original;
  uint32_t thread, graph;
};

/* What the caller reads; all counts are since opscope_cupti_begin. */
struct state {
  uint64_t requested, refused, completed, outstanding, waiting;
  uint64_t records, bytes, buffers, lost_buffers, lost_records;
  uint64_t names, unread_names, foreign, nodes, lost_nodes;
  uint64_t first_call, last_call; /* of the records of calls, on CUPTI's clock; 0: none yet */
  uint64_t wrong_sizes;           /* kinds whose records have not the size of the layout */
  int32_t error, full, dead, fatal;
};

typedef int (*next_record)(uint8_t*, size_t, void**);
typedef int (*get_node)(void*, uint64_t*);
typedef int (*get_graph)(void*, uint32_t*);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER, quiet = PTHREAD_COND_INITIALIZER;
static struct state now;
static struct buffer *all[MOST_BUFFERS], *spare, *first, *last;
static size_t made, most = 256, size = 1 << 20;
static uint64_t limit = UINT64_MAX;
static uint32_t sessions;
static int running, quit, busy, alive, raw = -1, lines = -1, forks;
static pthread_t writer;
static next_record next;
static get_node node_of;
static get_graph graph_of;
/* The sizes that a kind's records may have, the likeliest first, and where their texts' pointers lie. */
static struct layout {
  uint32_t size, text[TEXTS];
} layouts[KINDS][LAYOUTS];
static uint32_t seen_size[KINDS];
static struct name* names;
static uint32_t names_room, names_held;
static struct node nodes[NODES];
static uint32_t nodes_held;
static struct {
  uint32_t theirs, system;
} threads[THREADS];
static uint32_t threads_held, threads_written;
static int system_threads; /* whether CUPTI's records have the system's thread ids */
static char fault[512];

/* ------------------------------------------------------------------------------------------- clocks */

static uint64_t read_clock(clockid_t which) {
  struct timespec at;
  clock_gettime(which, &at);
  return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

/* The recorder's clock, for cuptiActivityRegisterTimestampCallback. */
API uint64_t opscope_cupti_clock(void) { return read_clock(CLOCK_MONOTONIC); }

/* CUPTI's own default on Linux, which is put back at the end. */
API uint64_t opscope_cupti_unix(void) { return read_clock(CLOCK_REALTIME); }

/* ------------------------------------------------------------------------------------------ writing */

static int write_all(int file, const void* bytes, size_t many) {
  const char* at = bytes;
  while (many) {
    ssize_t done = write(file, at, many);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return done < 0 ? errno : EIO;
    at += done;
    many -= (size_t)done;
  }
  return 0;
}

/* A line of cupti.jsonl that grows; written in one piece, as the caller appends lines of its own. */
struct line {
  char* text;
  size_t length, room;
};

static int put(struct line* to, const char* text, size_t many) {
  if (to->length + many > to->room) {
    size_t room = 2 * to->room + many + 256;
    char* more = realloc(to->text, room);
    if (!more) return 0;
    to->text = more;
    to->room = room;
  }
  memcpy(to->text + to->length, text, many);
  to->length += many;
  return 1;
}

static void puts_to(struct line* to, const char* text) { put(to, text, strlen(text)); }

/* Append the text as a JSON string. Bytes that are no UTF-8 go out as they are; the reader replaces them. */
static void put_quoted(struct line* to, const char* text, size_t many) {
  char escaped[8];
  puts_to(to, "\"");
  for (size_t i = 0; i < many; i++) {
    unsigned char one = (unsigned char)text[i];
    if (one == '"' || one == '\\') {
      escaped[0] = '\\', escaped[1] = (char)one;
      put(to, escaped, 2);
    } else if (one < 0x20 || one == 0x7f) {
      put(to, escaped, (size_t)snprintf(escaped, sizeof escaped, "\\u%04x", one));
    } else {
      put(to, text + i, 1);
    }
  }
  puts_to(to, "\"");
}

static void send_line(struct line* line) {
  if (line->length && lines >= 0 && !now.error) {
    puts_to(line, "\n");
    int error = write_all(lines, line->text, line->length);
    if (error) now.error = error;
  }
  line->length = 0;
}

/* --------------------------------------------------------------------------------------------- texts */

/* Copy memory that may not be there: the kernel reads it, so that a wrong pointer is an error and no fault. */
static ssize_t careful(uint64_t from, char* to, size_t many) {
  static int pipes[2] = {-1, -1};
  struct iovec here = {to, many}, there = {(void*)(uintptr_t)from, many};
  ssize_t done = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
  if (done >= 0 || (errno != ENOSYS && errno != EPERM)) return done;
  if (pipes[0] < 0 && pipe2(pipes, O_CLOEXEC | O_NONBLOCK)) return -1;
  done = write(pipes[1], (const void*)(uintptr_t)from, many < 4096 ? many : 4096);
  return done <= 0 ? -1 : read(pipes[0], to, (size_t)done);
}

/* Copy the text at the address, with its end; return its length, -1 if it cannot be read. */
static ssize_t text_of(uint64_t address, char* to) {
  size_t many = 0;
  while (many < MOST_NAME) {
    size_t piece = 4096 - ((address + many) & 4095); /* the next page may not exist */
    if (piece > MOST_NAME - many) piece = MOST_NAME - many;
    ssize_t done = careful(address + many, to + many, piece);
    if (done <= 0) return -1;
    char* end = memchr(to + many, 0, (size_t)done);
    if (end) return end - to;
    many += (size_t)done;
  }
  return MOST_NAME;
}

static uint64_t hash_of(const char* text, size_t many) {
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < many; i++) hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
  return hash | 1;
}

static struct name* slot_of(uint64_t address) {
  uint32_t at = (uint32_t)((address * 0x9E3779B97F4A7C15u) >> 32) & (names_room - 1);
  while (names[at].address && names[at].address != address) at = (at + 1) & (names_room - 1);
  return names + at;
}

static int grow_names(void) {
  struct name* old = names;
  uint32_t held = names_room, room = held ? 2 * held : 1024;
  struct name* more = calloc(room, sizeof *more);
  if (!more) return 0;
  names = more;
  names_room = room;
  for (uint32_t i = 0; i < held; i++)
    if (old[i].address) *slot_of(old[i].address) = old[i];
  free(old);
  return 1;
}

/* Note the text at an address once, and again where another text has come to lie there. */
static void note_name(uint64_t address, uint64_t number, struct line* fresh, struct line* changed) {
  static char text[MOST_NAME + 1];
  if (!address || (2 * names_held >= names_room && !grow_names())) return;
  struct name* slot = slot_of(address);
  if (slot->address && slot->seen == number) return;
  if (!slot->address && names_held >= MOST_NAMES) return;
  ssize_t many = text_of(address, text);
  if (many < 0) {
    now.unread_names++;
    return;
  }
  uint64_t hash = hash_of(text, (size_t)many);
  int told = slot->address && slot->hash == hash;
  struct line* line = slot->address ? changed : fresh;
  if (!slot->address) names_held++;
  *slot = (struct name){address, hash, number};
  if (told) return;
  char key[32];
  now.names++;
  puts_to(line, line->length ? ", " : "{\"names\": {");
  put(line, key, (size_t)snprintf(key, sizeof key, "\"%llu\": ", (unsigned long long)address));
  put_quoted(line, text, (size_t)many);
}

static const struct layout* layout_of(uint32_t kind, size_t long_) {
  for (int i = 0; i < LAYOUTS; i++)
    if (layouts[kind][i].size == long_) return layouts[kind] + i;
  return NULL;
}

/* Visit the records of a buffer: count them, note texts and sizes. Return how many there are. */
static uint64_t walk(uint8_t* bytes, size_t valid, uint64_t number, int tell) {
  static struct line texts, changes, sizes;
  uint64_t many = 0;
  size_t at = 0;
  void *record = NULL, *following = NULL;
  int stepping = next && next(bytes, valid, &record) == 0 && record == (void*)bytes;
  while (at + 8 <= valid) {
    uint32_t kind;
    memcpy(&kind, bytes + at, 4);
    size_t long_ = kind < KINDS ? layouts[kind][0].size : 0;
    if (stepping) {
      following = record;
      int more = next(bytes, valid, &following) == 0;
      size_t end = more ? (size_t)((uint8_t*)following - bytes) : valid;
      if (end <= at || end > valid) break;
      long_ = end - at;
      record = following;
      /* the last record's end is not known where a buffer has a rest: only a record with one after it tells */
      if (kind < KINDS && more && !seen_size[kind]) {
        char text[48];
        seen_size[kind] = (uint32_t)long_;
        if (layouts[kind][0].size && !layout_of(kind, long_)) now.wrong_sizes++;
        puts_to(&sizes, sizes.length ? ", " : "{\"sizes\": {");
        put(&sizes, text, (size_t)snprintf(text, sizeof text, "\"%u\": %zu", kind, long_));
      }
      if (!more && kind < KINDS && layouts[kind][0].size && !layout_of(kind, long_) && !seen_size[kind]) {
        now.wrong_sizes++;
      }
      many++;
    } else {
      if (!long_ || at + long_ > valid) break;
      many++;
    }
    if (tell && kind < KINDS) {
      const struct layout* places = layout_of(kind, seen_size[kind] ? seen_size[kind] : long_);
      for (int i = 0; places && i < TEXTS && places->text[i]; i++) {
        uint64_t address;
        if (places->text[i] + 8 > long_) break;
        memcpy(&address, bytes + at + places->text[i], 8);
        note_name(address, number, &texts, &changes);
      }
      if ((kind == 4 || kind == 5) && long_ >= 24) {
        uint64_t start, end;
        memcpy(&start, bytes + at + 8, 8);
        memcpy(&end, bytes + at + 16, 8);
        if (start && (!now.first_call || start < now.first_call)) now.first_call = start;
        if (end > now.last_call) now.last_call = end;
      }
    }
    at += long_;
  }
  if (texts.length) puts_to(&texts, "}}");
  if (sizes.length) puts_to(&sizes, "}}");
  if (changes.length) {
    char text[48];
    put(&changes, text,
        (size_t)snprintf(text, sizeof text, "}, \"buffer\": %llu}", (unsigned long long)number));
  }
  if (tell)
    send_line(&sizes), send_line(&texts), send_line(&changes);
  else
    texts.length = sizes.length = changes.length = 0;
  return many;
}

static void tell_threads(void) {
  static struct line line;
  char text[48];
  while (threads_written < threads_held) {
    uint32_t at = threads_written++;
    puts_to(&line, line.length ? ", " : "{\"threads\": {");
    put(&line, text,
        (size_t)snprintf(text, sizeof text, "\"%u\": %u", threads[at].theirs, threads[at].system));
  }
  if (line.length) puts_to(&line, "}}");
  send_line(&line);
}

static void tell_nodes(struct node* some, uint32_t many) {
  static struct line line;
  char text[160];
  for (uint32_t i = 0; i < many; i++) {
    puts_to(&line, i ? ", " : "{\"graph_nodes\": [");
    put(&line, text,
        (size_t)snprintf(text, sizeof text, "[%llu, %u, %u, %llu, %llu]", (unsigned long long)some[i].time,
            some[i].thread, some[i].graph, (unsigned long long)some[i].node,
            (unsigned long long)some[i].original));
  }
  if (many) puts_to(&line, "]}");
  send_line(&line);
}

static void tell_fault(const char* text) {
  static struct line line;
  puts_to(&line, "{\"note\": ");
  put_quoted(&line, text, strlen(text));
  puts_to(&line, "}");
  send_line(&line);
}

static void write_buffer(struct buffer* one) {
  uint8_t* bytes = (uint8_t*)one + HEAD;
  uint64_t number = now.buffers + 1; /* of the buffer in cupti.raw */
  struct head head = {"", one->valid, one->time, 0, 0};
  memcpy(head.magic, "OPSCUPT1", 8);
  if (now.error || now.full || now.bytes + sizeof head + one->valid > limit) {
    if (!now.error) now.full = 1;
    now.lost_buffers++;
    now.lost_records += walk(bytes, one->valid, number, 0);
    return;
  }
  uint64_t many = walk(bytes, one->valid, number, 1);
  int error = now.error ? now.error : write_all(raw, &head, sizeof head);
  if (!error) error = write_all(raw, bytes, one->valid);
  if (error) {
    now.error = error;
    now.lost_buffers++;
    now.lost_records += many;
    return;
  }
  now.records += many;
  now.buffers++;
  now.bytes += sizeof head + one->valid;
}

static void* write_buffers(void* nothing) {
  static struct node some[NODES];
  (void)nothing;
  pthread_mutex_lock(&lock);
  for (;;) {
    while (!quit && (raw < 0 || (!first && !nodes_held && threads_written == threads_held && !fault[0])))
      pthread_cond_wait(&work, &lock);
    if (raw < 0 || (!first && !nodes_held && threads_written == threads_held && !fault[0])) break;
    struct buffer* one = first;
    uint32_t many = nodes_held;
    char text[sizeof fault];
    memcpy(some, nodes, many * sizeof *some);
    memcpy(text, fault, sizeof text);
    nodes_held = 0;
    fault[0] = 0;
    if (one && !(first = one->next)) last = NULL;
    busy = 1;
    pthread_mutex_unlock(&lock);
    tell_threads();
    tell_nodes(some, many);
    if (text[0]) tell_fault(text);
    if (one) write_buffer(one);
    pthread_mutex_lock(&lock);
    busy = 0;
    if (one && quit) { /* the recording has ended meanwhile, and with it the pool */
      free(one);
    } else if (one) {
      one->next = spare;
      spare = one;
      now.waiting--;
    }
    pthread_cond_broadcast(&quiet);
  }
  alive = 0;
  pthread_cond_broadcast(&quiet);
  pthread_mutex_unlock(&lock);
  return NULL;
}

/* ---------------------------------------------------------------------------------- called by CUPTI */

static void note_thread(void) {
  static __thread uint32_t noted; /* the recording that has this thread */
  uint32_t system = (uint32_t)syscall(SYS_gettid);
  if (noted == sessions || threads_held == THREADS) return;
  noted = sessions;
  threads[threads_held].theirs = system_threads ? system : (uint32_t)(uintptr_t)pthread_self();
  threads[threads_held].system = system;
  threads_held++;
}

API void opscope_cupti_requested(uint8_t** buffer, size_t* room, size_t* records) {
  *buffer = NULL;
  *room = *records = 0;
  pthread_mutex_lock(&lock);
  if (running) {
    note_thread();
    struct buffer* one = spare;
    if (one) {
      spare = one->next;
    } else if (made < most) {
      void* block = NULL;
      if (!posix_memalign(&block, HEAD, HEAD + size)) all[made++] = one = block;
    }
    if (one) {
      now.requested++;
      now.outstanding++;
      *buffer = (uint8_t*)one + HEAD;
      *room = size;
    } else {
      now.refused++;
    }
  }
  pthread_mutex_unlock(&lock);
}

API void opscope_cupti_completed(void* context, uint32_t stream, uint8_t* buffer, size_t room, size_t valid) {
  struct buffer* one = NULL;
  (void)context, (void)stream, (void)room;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < made && !one; i++)
    if ((uint8_t*)all[i] + HEAD == buffer) one = all[i];
  if (!one) {
    now.foreign++; /* of another user of CUPTI, or of an earlier recording */
  } else {
    if (now.outstanding) now.outstanding--;
    now.completed++;
    one->next = NULL;
    one->valid = valid < size ? valid : size;
    one->time = read_clock(CLOCK_MONOTONIC);
    if (!valid || !alive || now.dead) {
      if (valid) now.lost_buffers++;
      one->next = spare;
      spare = one;
    } else {
      if (last)
        last->next = one;
      else
        first = one;
      last = one;
      now.waiting++;
      pthread_cond_signal(&work);
    }
  }
  pthread_mutex_unlock(&lock);
}

struct resource {
  void *context, *stream, *descriptor;
};

struct graph {
  void *graph, *original_graph, *node, *original_node;
};

struct notification {
  int result;
  const char* message;
};

/* The subscriber's callback: nodes of CUDA graphs as they are made, and errors of CUPTI itself. */
API void opscope_cupti_called(void* user, int domain, uint32_t cbid, const void* data) {
  (void)user;
  if (domain == 3 && (cbid == 13 || cbid == 20) && data && node_of) {
    const struct graph* made_one = ((const struct resource*)data)->descriptor;
    struct node one = {read_clock(CLOCK_MONOTONIC), 0, 0, (uint32_t)syscall(SYS_gettid), 0};
    if (!made_one || node_of(made_one->node, &one.node)) return;
    if (cbid == 20 && node_of(made_one->original_node, &one.original)) return;
    if (graph_of && graph_of(made_one->graph, &one.graph)) one.graph = 0;
    pthread_mutex_lock(&lock);
    if (running) {
      now.nodes++;
      if (nodes_held < NODES)
        nodes[nodes_held++] = one;
      else
        now.lost_nodes++;
      pthread_cond_signal(&work);
    }
    pthread_mutex_unlock(&lock);
  } else if (domain == 6 && (cbid == 1 || cbid == 2) && data) {
    const struct notification* told = data;
    pthread_mutex_lock(&lock);
    if (running) {
      if (cbid == 1) now.fatal = told->result;
      snprintf(fault, sizeof fault, "CUPTI reports error %d: %s", told->result,
          told->message ? told->message : "");
      pthread_cond_signal(&work);
    }
    pthread_mutex_unlock(&lock);
  }
}

/* --------------------------------------------------------------------------------- called by Python */

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void in_parent(void) { pthread_mutex_unlock(&lock); }

/* The child has no writer, and CUDA cannot be used in it: it takes nothing and writes nothing. */
static void in_child(void) {
  running = alive = busy = 0;
  first = last = spare = NULL;
  made = 0;
  raw = lines = -1;
  now.dead = 1;
  pthread_mutex_unlock(&lock);
}

API void opscope_cupti_configure(
    size_t bytes, size_t buffers, uint64_t most_bytes, void* next_, void* node_, void* graph_) {
  pthread_mutex_lock(&lock);
  if (!made) size = bytes;
  most = buffers < MOST_BUFFERS ? buffers : MOST_BUFFERS;
  limit = most_bytes;
  next = (next_record)next_;
  node_of = (get_node)node_;
  graph_of = (get_graph)graph_;
  memset(layouts, 0, sizeof layouts);
  pthread_mutex_unlock(&lock);
}

/* Add a size that a kind's records may have, and where the pointer to a text lies in them (0: nowhere). */
API void opscope_cupti_layout(uint32_t kind, uint32_t bytes, uint32_t text) {
  int at = 0, place = 0;
  if (kind >= KINDS || !bytes) return;
  while (at < LAYOUTS && layouts[kind][at].size && layouts[kind][at].size != bytes) at++;
  if (at == LAYOUTS) return;
  layouts[kind][at].size = bytes;
  while (place < TEXTS && layouts[kind][at].text[place]) place++;
  if (text && place < TEXTS) layouts[kind][at].text[place] = text;
}

/* Whether CUPTI's records have the system's thread ids (else the C library's, cut to 32 bits). */
API void opscope_cupti_system_threads(int yes) { system_threads = yes; }

/* Begin to hand out buffers; they wait until opscope_cupti_open. Return 0, or an error number. */
API int opscope_cupti_begin(void) {
  sigset_t every, before;
  int error = 0;
  pthread_mutex_lock(&lock);
  if (running || alive) error = EBUSY;
  if (!error && !forks++) error = pthread_atfork(before_fork, in_parent, in_child);
  if (!error) {
    memset(&now, 0, sizeof now);
    memset(seen_size, 0, sizeof seen_size);
    free(names);
    names = NULL;
    names_room = names_held = nodes_held = threads_held = threads_written = 0;
    sessions++;
    fault[0] = 0;
    quit = 0;
    raw = lines = -1;
    sigfillset(&every); /* the program's signal handlers are not for this thread */
    pthread_sigmask(SIG_SETMASK, &every, &before);
    alive = 1;
    error = pthread_create(&writer, NULL, write_buffers, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
      alive = 0;
    else
      pthread_detach(writer), pthread_setname_np(writer, "opscope-cupti");
    running = alive;
  }
  pthread_mutex_unlock(&lock);
  return error;
}

/* Write to these files from now on. They are the caller's, who closes them after opscope_cupti_end. */
API void opscope_cupti_open(int raw_file, int lines_file) {
  pthread_mutex_lock(&lock);
  raw = raw_file;
  lines = lines_file;
  pthread_cond_signal(&work);
  pthread_mutex_unlock(&lock);
}

static int wait_for(uint64_t until) {
  struct timespec at = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
  return pthread_cond_timedwait(&quiet, &lock, &at);
}

/* Write what comes from now on to another file; return how many buffers lie in those before, -1 if the disk
 * hangs, when nothing changes. The bound of bytes holds for each file. */
API int64_t opscope_cupti_turn(int raw_file, uint32_t milliseconds) {
  uint64_t until = read_clock(CLOCK_REALTIME) + 1000000u * (uint64_t)milliseconds;
  pthread_mutex_lock(&lock);
  while (alive && raw >= 0 && (first || busy) && !wait_for(until)) continue;
  int64_t many = busy ? -1 : (int64_t)now.buffers;
  if (!busy) {
    raw = raw_file;
    now.bytes = 0;
    now.full = 0;
  }
  pthread_mutex_unlock(&lock);
  return many;
}

/* Take no more buffers, write those that wait, and end the writer. Return 1 if all was written in time. */
API int opscope_cupti_end(uint32_t milliseconds) {
  uint64_t until = read_clock(CLOCK_REALTIME) + 1000000u * (uint64_t)milliseconds;
  pthread_mutex_lock(&lock);
  running = 0;
  while (alive && raw >= 0 && (first || busy || nodes_held || fault[0]) && !wait_for(until)) continue;
  int done = !first && !busy;
  quit = 1;
  if (!done) { /* the disk hangs: what waits is lost, and the files must not be used any more */
    for (struct buffer* one = first; one; one = one->next) now.lost_buffers++;
    raw = lines = -1;
  }
  pthread_cond_broadcast(&work);
  while (done && alive && !wait_for(until)) continue;
  raw = lines = -1;
  while (first) {
    struct buffer* one = first;
    first = one->next;
    one->next = spare;
    spare = one;
  }
  last = NULL;
  now.waiting = 0;
  while (spare) {
    struct buffer* one = spare;
    spare = one->next;
    free(one);
  }
  made = 0; /* what CUPTI still has stays allocated: it may write there at any time */
  pthread_mutex_unlock(&lock);
  return done;
}

API void opscope_cupti_state(struct state* to) {
  pthread_mutex_lock(&lock);
  *to = now;
  pthread_mutex_unlock(&lock);
}

#include "live_injected.h"
