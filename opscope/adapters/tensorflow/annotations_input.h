/* Records the waits for tf.data. Part of annotations.c.
 *
 * In a graph IteratorGetNext is asynchronous: its range ends when the work is handed to another thread. When an
 * iterator has its next batch, TensorFlow counts how long that took, in us, on the thread that got it
 * (tensorflow/core/data/metric_utils.cc, alike from 2.17 to 2.21). That call comes here first. */

#define WAIT_TEXT "opscope tf.data"

static void (*real_get_next)(uint64_t);
static int64_t wait_pop_code;

static void got_next(uint64_t us) {
  real_get_next(us);
  if (!recording || !(run & 1) || !wait_pop_code || us > (uint64_t)1 << 50) return;
  Thread* thread = this_thread();
  Text* text = NULL;
  if (thread) {
    heed(thread, run);
    text = text_of(hash_of(WAIT_TEXT, sizeof WAIT_TEXT - 1), WAIT_TEXT);
  }
  int64_t end = now();
  if (text && put(thread, text_base + text->id, end - (int64_t)us * 1000, 0))
    put(thread, wait_pop_code, end, 1);
  else
    lost++;
}

/* Record waits, as ranges of the domain with that pop code; 0: record none. Returns whether they are heard. */
EXPORT int opscope_waits(int64_t popped) {
  wait_pop_code = popped;
  return real_get_next != NULL;
}
