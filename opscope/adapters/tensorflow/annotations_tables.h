/* Replaces entries in the import tables of loaded libraries. Part of annotations.c. */

static struct {
  void** slot;
  void *before, *after;
  int read_only;
} patches[MAX_PATCHES];
static int patched;

static void write_slot(void** slot, void* value, int read_only) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)slot & ~(page - 1);
  if (mprotect((void*)at, page, PROT_READ | PROT_WRITE)) return;
  __atomic_store_n(slot, value, __ATOMIC_RELEASE);
  if (read_only) mprotect((void*)at, page, PROT_READ);
}

static int patch_library(struct dl_phdr_info* library, size_t size, void* unused) {
  (void)size, (void)unused;
  if (!strstr(library->dlpi_name, "tensorflow")) return 0;
  const ElfW(Dyn)* dynamic = NULL;
  uintptr_t protected_from = 0, protected_to = 0;
  for (int i = 0; i < library->dlpi_phnum; i++) {
    const ElfW(Phdr)* header = &library->dlpi_phdr[i];
    uintptr_t start = library->dlpi_addr + header->p_vaddr;
    if (header->p_type == PT_DYNAMIC) dynamic = (const ElfW(Dyn)*)start;
    if (header->p_type == PT_GNU_RELRO) protected_from = start, protected_to = start + header->p_memsz;
  }
  const ElfW(Sym)* symbols = NULL;
  const char* strings = NULL;
  const ElfW(Rela)* jumps = NULL;
  size_t bytes = 0;
  for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
    if (dynamic->d_tag == DT_SYMTAB) symbols = (const void*)dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_STRTAB) strings = (const void*)dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_JMPREL) jumps = (const void*)dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_PLTRELSZ) bytes = dynamic->d_un.d_val;
    if (dynamic->d_tag == DT_PLTREL && dynamic->d_un.d_val != DT_RELA) return 0;
  }
  if (!symbols || !strings || !jumps) return 0;
  for (size_t i = 0; i < bytes / sizeof *jumps; i++) {
    if (ELF64_R_TYPE(jumps[i].r_info) != JUMP_SLOT) continue;
    const char* name = strings + symbols[ELF64_R_SYM(jumps[i].r_info)].st_name;
    for (int k = 0; k < REPLACED && patched < MAX_PATCHES; k++) {
      if (strcmp(name, replaced[k].symbol) || !*replaced[k].real) continue;
      void** slot = (void**)(library->dlpi_addr + jumps[i].r_offset);
      if (*slot == replaced[k].replacement) continue;
      patches[patched].slot = slot;
      patches[patched].before = *slot;
      patches[patched].after = replaced[k].replacement;
      patches[patched].read_only = (uintptr_t)slot >= protected_from && (uintptr_t)slot < protected_to;
      write_slot(slot, replaced[k].replacement, patches[patched].read_only);
      patched++;
    }
  }
  return 0;
}
