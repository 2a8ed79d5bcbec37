/* Hands the records to Python, which writes them. Part of annotations.c. */

/* The number of records that wait to be taken, plus one for each thread: the head of its chunk. */
EXPORT int64_t opscope_waiting(void) {
  int64_t total = 0;
  pthread_mutex_lock(&threads_lock);
  for (Thread* t = threads; t; t = t->next) {
    uint64_t skip = t->upto;
    for (Block* b = t->taken; b; b = b->next, skip = 0) total += (int64_t)(b->count - skip);
    total++;
  }
  pthread_mutex_unlock(&threads_lock);
  return total;
}

/* Copy chunks of records into ``out``, which has room for ``room`` records. A chunk is a head
 * (chunk - thread, count), then its records. Returns how many records were written, heads included. Only one
 * thread may call this at a time. */
EXPORT int64_t opscope_take(Record* out, int64_t room) {
  int64_t written = 0;
  pthread_mutex_lock(&threads_lock);
  for (Thread** place = &threads; *place;) {
    Thread* t = *place;
    int gone = t->gone;
    Record* head = NULL;
    while (written + 1 < room) {
      uint64_t count = atomic_load_explicit(&t->taken->count, memory_order_acquire);
      int64_t many = (int64_t)(count - t->upto);
      if (many > room - written - (head ? 0 : 1)) many = room - written - (head ? 0 : 1);
      if (many > 0) {
        if (!head) {
          head = &out[written++];
          *head = (Record){chunk_code - (thread_base + t->number), 0};
        }
        memcpy(&out[written], &t->taken->records[t->upto], (size_t)many * sizeof *out);
        written += many;
        head->value += many;
        t->upto += (uint64_t)many;
      }
      Block* next = atomic_load_explicit(&t->taken->next, memory_order_acquire);
      if (t->upto < BLOCK || !next) break;
      free(t->taken);
      blocks--;
      t->taken = next;
      t->upto = 0;
    }
    if (gone && t->upto == t->taken->count && !t->taken->next) {
      *place = t->next;
      free(t->taken);
      blocks--;
      free(t);
    } else {
      place = &t->next;
    }
  }
  pthread_mutex_unlock(&threads_lock);
  return written;
}

/* Write (number, thread id, pthread ident) of the threads numbered ``from`` and up. Returns how many threads
 * were written. Threads that have ended may be missing. */
EXPORT int64_t opscope_threads(int64_t from, int64_t* out, int64_t room) {
  int64_t many = 0;
  pthread_mutex_lock(&threads_lock);
  for (Thread* t = threads; t && many < room; t = t->next) {
    if (t->number < from) continue;
    out[3 * many] = thread_base + t->number;
    out[3 * many + 1] = t->tid;
    out[3 * many + 2] = t->ident;
    many++;
  }
  pthread_mutex_unlock(&threads_lock);
  return many;
}
