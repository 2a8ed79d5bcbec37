/* Numbers the distinct texts of ranges. Part of annotations.c. */

/* ``hash`` covers the text that TensorFlow pushed, and the shapes if they are known. Texts are looked up by
 * the hash alone: among MAX_TEXTS texts, two have the same hash with a probability of 1 in 30 million. */
typedef struct {
  uint64_t hash;
  uint32_t id;
  char* text;
  void* nvtx;
} Text;

static pthread_mutex_t texts_lock = PTHREAD_MUTEX_INITIALIZER;
static Text** table;            /* open addressing, by hash */
static Text** texts;            /* by id */
static uint32_t table_size, texts_size;
static _Atomic uint32_t text_count;

/* XOR the two halves of the product, which depend on all bits of both factors. */
static inline uint64_t mixed(uint64_t a, uint64_t b) {
  unsigned __int128 product = (unsigned __int128)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t word(const char* text) {
  uint64_t w;
  memcpy(&w, text, sizeof w);
  return w;
}

static uint64_t hash_of(const char* text, size_t length) {
  const uint64_t k0 = 0x9e3779b97f4a7c15ull, k1 = 0xff51afd7ed558ccdull;
  uint64_t h = k0 ^ length, last[2] = {0, 0};
  for (; length > 16; length -= 16, text += 16) h = mixed(word(text) ^ k1, word(text + 8) ^ h);
  memcpy(last, text, length);
  return mixed(mixed(last[0] ^ k1, last[1] ^ h), k0);
}

static void* nvtx_string(const char* text);

static int grow(void) {
  uint32_t size = table_size ? table_size * 2 : 4096, count = text_count;
  Text** larger = calloc(size, sizeof *larger);
  Text** longer = larger ? realloc(texts, sizeof *texts * (size / 2)) : NULL;
  if (!longer) {
    free(larger);
    return 0;
  }
  for (uint32_t i = 0; i < count; i++) {
    uint32_t at = (uint32_t)longer[i]->hash & (size - 1);
    while (larger[at]) at = (at + 1) & (size - 1);
    larger[at] = longer[i];
  }
  free(table);
  table = larger, table_size = size;
  texts = longer, texts_size = size / 2;
  return 1;
}

/* Allocate zeroed memory that is never freed. Call it under the lock. Texts have their own memory mappings:
 * on the heap they would be between the program's tensors, and freed tensors could not be merged or
 * returned to the system. */
static void* kept(size_t bytes) {
  static char* free_from;
  static size_t left;
  bytes = (bytes + 15) & ~(size_t)15;
  if (bytes > left) {
    size_t size = bytes > ARENA ? (bytes + ARENA - 1) / ARENA * ARENA : ARENA;
    void* more = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (more == MAP_FAILED) return NULL;
    free_from = more;
    left = size;
  }
  void* found = free_from;
  free_from += bytes;
  left -= bytes;
  return found;
}

/* Return the text with that hash; if there is none, add a copy of ``string``. */
static Text* text_of(uint64_t hash, const char* string) {
  Text* found = NULL;
  pthread_mutex_lock(&texts_lock);
  uint32_t at = 0;
  if (table_size) {
    at = (uint32_t)hash & (table_size - 1);
    for (; (found = table[at]); at = (at + 1) & (table_size - 1))
      if (found->hash == hash) break;
  }
  if (!found && text_count < MAX_TEXTS && (text_count < texts_size || grow())) {
    size_t length = strlen(string);
    found = kept(sizeof *found + length + 1);
    if (found) {
      found->text = memcpy(found + 1, string, length + 1);
      found->hash = hash;
      found->id = text_count;
      found->nvtx = nvtx_string(found->text);
      for (at = (uint32_t)hash & (table_size - 1); table[at];) at = (at + 1) & (table_size - 1);
      table[at] = texts[text_count] = found;
      text_count++;
    }
  }
  pthread_mutex_unlock(&texts_lock);
  return found;
}
