/* The distinct texts that were announced, numbered. Part of annotations.c. */

/* ``hash`` is of the announcement, and of the shapes where these are told. Texts are looked up by it
 * alone: of MAX_TEXTS texts two have the same with a chance of 1 in 30 million. */
typedef struct { uint64_t hash; uint32_t id; char *text; void *nvtx; } Text;

static pthread_mutex_t texts_lock = PTHREAD_MUTEX_INITIALIZER;
static Text **table;            /* open addressing, by hash */
static Text **texts;            /* by id */
static uint32_t table_size, texts_size;
static _Atomic uint32_t text_count;

/* Two halves of a product, which depend on all bits of both factors. */
static inline uint64_t mixed(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t word(const char *text) {
    uint64_t w;
    memcpy(&w, text, sizeof w);
    return w;
}

static uint64_t hash_of(const char *text, size_t length) {
    const uint64_t k0 = 0x9e3779b97f4a7c15ull, k1 = 0xff51afd7ed558ccdull;
    uint64_t h = k0 ^ length, last[2] = {0, 0};
    for (; length > 16; length -= 16, text += 16) h = mixed(word(text) ^ k1, word(text + 8) ^ h);
    memcpy(last, text, length);
    return mixed(mixed(last[0] ^ k1, last[1] ^ h), k0);
}

static void *nvtx_string(const char *text);

static int grow(void) {
    uint32_t size = table_size ? table_size * 2 : 4096, count = text_count;
    Text **larger = calloc(size, sizeof *larger);
    Text **longer = larger ? realloc(texts, sizeof *texts * (size / 2)) : NULL;
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

/* The text of that hash, a copy of ``string`` if it is new. */
static Text *text_of(uint64_t hash, const char *string) {
    Text *found = NULL;
    pthread_mutex_lock(&texts_lock);
    uint32_t at = 0;
    if (table_size) {
        at = (uint32_t)hash & (table_size - 1);
        for (; (found = table[at]); at = (at + 1) & (table_size - 1))
            if (found->hash == hash) break;
    }
    if (!found && text_count < MAX_TEXTS && (text_count < texts_size || grow())) {
        found = calloc(1, sizeof *found);
        if (found && (found->text = strdup(string))) {
            found->hash = hash;
            found->id = text_count;
            found->nvtx = nvtx_string(found->text);
            for (at = (uint32_t)hash & (table_size - 1); table[at];)
                at = (at + 1) & (table_size - 1);
            table[at] = texts[text_count] = found;
            text_count++;
        } else {
            free(found);
            found = NULL;
        }
    }
    pthread_mutex_unlock(&texts_lock);
    return found;
}
