// Makes an op call's signature (a hash) and its text, equal to the text of call.py and rangetext.py.

#pragma once

#include "state.h"

namespace {

// ------------------------------------------------------------------------------------ hashing

// Each product depends on the previous one, so each takes in two values.
struct Hasher {
  uint64_t state;
  void add(uint64_t value, uint64_t other = 0) {
    __uint128_t product = __uint128_t(state ^ value) * (0x9E3779B97F4A7C15ull ^ other);
    state = uint64_t(product) ^ uint64_t(product >> 64) ^ (value << 1) ^ (other << 32 | other >> 32);
  }
  void add(const std::string& text) { add(std::hash<std::string>{}(text)); }
};

// Returns the name of a process group or the kind of a reduction; null for any other value, and where
// groups.cpp is not loaded.
std::atomic<const void* (*)(const void*)> g_object_name{nullptr};
const std::string* object_name(const IValue& value) {
  auto ask = value.isObject() ? g_object_name.load(std::memory_order_acquire) : nullptr;
  return ask ? static_cast<const std::string*>(ask(&value)) : nullptr;
}

inline bool plain(const c10::TensorImpl* impl) {
  return impl->layout() == c10::kStrided && !impl->has_symbolic_sizes_strides() && !impl->is_nested();
}

// Whether the sizes of a tensor that is not plain may be read here.
inline bool has_sizes(const c10::TensorImpl* impl) {
  return !impl->is_nested() && !impl->has_symbolic_sizes_strides() && !impl->is_python_dispatch();
}

// Returns the number of elements that a sparse tensor stores; -1 for other tensors.
int64_t stored(const c10::TensorImpl* impl) {
  if (auto* coo = dynamic_cast<const at::SparseTensorImpl*>(impl)) return coo->values().numel();
  if (auto* compressed = dynamic_cast<const at::SparseCsrTensorImpl*>(impl))
    return compressed->values().numel();
  return -1;
}

COLD void sign_odd(Hasher& hash, const c10::TensorImpl* impl, uint64_t kind, bool numbers) {
  hash.add(kind | uint64_t(1) << 41 | uint64_t(uint8_t(impl->layout())) << 48);
  if (!has_sizes(impl)) return;
  for (int64_t size : impl->sizes()) hash.add(uint64_t(size));
  if (numbers) hash.add(uint64_t(stored(impl)));
}

// Returns the address of a number that PyTorch wrapped in a tensor; null where it is not in the CPU's memory.
// Copies of the tensor have the flag too, also on other devices.
inline const void* number_data(const c10::TensorImpl* impl) {
  if (!impl->device().is_cpu() || !impl->has_storage()) return nullptr;
  const void* data = impl->storage().data();
  return data ? static_cast<const char*>(data) + impl->storage_offset() * impl->itemsize() : nullptr;
}

inline void sign(Hasher& hash, const at::Tensor& tensor, bool numbers) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!tensor.defined()) {
    hash.add(1);
    return;
  }
  uint64_t dtype = uint64_t(c10::typeMetaToScalarType(impl->dtype()));
  if (C10_UNLIKELY(impl->is_wrapped_number())) {
    hash.add(0x200 | dtype);
    const void* data = numbers || dtype == uint64_t(at::kBool) ? number_data(impl) : nullptr;
    if (data) {
      uint64_t bits[2] = {0, 0};
      std::memcpy(bits, data, std::min<size_t>(impl->itemsize(), 16));
      hash.add(bits[0], bits[1]);
    }
    return;
  }
  auto device = impl->device();
  uint64_t kind = 0x10000 | dtype | uint64_t(uint8_t(device.type())) << 24 |
      uint64_t(uint8_t(device.index())) << 32 | uint64_t(impl->key_set().has(c10::DispatchKey::Python)) << 42;
  if (C10_UNLIKELY(!plain(impl))) return sign_odd(hash, impl, kind, numbers);
  auto sizes = impl->sizes_default();
  auto strides = impl->strides_default();
  hash.add(kind | uint64_t(sizes.size()) << 48);
  for (size_t dim = 0; dim < sizes.size(); ++dim) hash.add(uint64_t(sizes[dim]), uint64_t(strides[dim]));
}

void sign_rare(Hasher& hash, const IValue& value, bool numbers, bool is_number);

inline void sign(Hasher& hash, const IValue& value, bool numbers, bool is_number) {
  if (value.isTensor()) {
    sign(hash, value.toTensor(), numbers);
  } else if (value.isNone()) {
    hash.add(2);
  } else if (value.isInt()) {
    hash.add(3, numbers || !is_number ? uint64_t(value.toInt()) : 0);
  } else if (value.isBool()) {
    hash.add(4 + (value.toBool() ? 1 : 0));
  } else {
    sign_rare(hash, value, numbers, is_number);
  }
}

void sign_rare(Hasher& hash, const IValue& value, bool numbers, bool is_number) {
  if (value.isDouble()) {
    uint64_t bits = 0;
    double number = value.toDouble();
    if (numbers) std::memcpy(&bits, &number, 8);
    hash.add(6, bits);
  } else if (value.isIntList()) {
    const auto& list = value.toListRef();
    hash.add(0x80000000ull + list.size());
    if (numbers || !is_number)
      for (const IValue& one : list) hash.add(3, uint64_t(one.toInt()));
  } else if (value.isTensorList()) {
    const auto& list = value.toListRef();
    hash.add(0x700 + list.size());
    for (const IValue& one : list) sign(hash, one.toTensor(), numbers);
  } else if (value.isList()) {
    const auto& list = value.toListRef();
    hash.add(0x80000000ull + list.size());
    for (const IValue& one : list) sign(hash, one, numbers, is_number);
  } else if (value.isString()) {
    hash.add(9);
    hash.add(std::hash<std::string_view>{}(value.toStringView()));
  } else if (value.isDevice()) {
    auto device = value.toDevice();
    hash.add(0xA0000 | uint64_t(uint8_t(device.type())) << 8 | uint8_t(device.index()));
  } else if (value.isComplexDouble()) {
    hash.add(11);
    if (numbers) {
      auto number = value.toComplexDouble();
      uint64_t bits[2];
      std::memcpy(bits, &number, 16);
      hash.add(bits[0]);
      hash.add(bits[1]);
    }
  } else if (const std::string* name = object_name(value)) {
    hash.add(*name);
  } else {
    hash.add(12);  // a generator or an object, whose identity does not matter
  }
}

// ------------------------------------------------------------------------------------ writing

bool plain_name(const std::string& text) {
  if (text.empty()) return false;
  for (unsigned char c : text)
    if (!(std::isalnum(c) || c == '_' || c >= 0x80 || std::strchr(":./$+-", c))) return false;
  return true;
}

std::string json(std::string_view text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (c < 0x20) {
          char escaped[8];
          std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
          out += escaped;
        } else {
          out += char(c);
        }
    }
  }
  return out + "\"";
}

// Formats a float as Python's repr does: the fewest digits that read back as the same number.
std::string number(double value, bool integral_point = true) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string text(buffer, end);
  size_t e = text.find('e');
  int exponent = std::atoi(text.c_str() + e + 1);
  bool negative = text[0] == '-';
  std::string digits;
  for (size_t at = negative; at < e; ++at)
    if (text[at] != '.') digits += text[at];
  std::string out = negative ? "-" : "";
  if (exponent >= 16 || exponent < -4) {
    out += digits.substr(0, 1);
    if (digits.size() > 1) out += "." + digits.substr(1);
    char tail[8];
    std::snprintf(tail, sizeof tail, "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return out + tail;
  }
  if (exponent < 0) return out + "0." + std::string(-exponent - 1, '0') + digits;
  if (int(digits.size()) <= exponent + 1)
    return out + digits + std::string(exponent + 1 - digits.size(), '0') + (integral_point ? ".0" : "");
  return out + digits.substr(0, exponent + 1) + "." + digits.substr(exponent + 1);
}

std::string complex_number(c10::complex<double> value) {
  auto part = [](double x) {
    if (std::isnan(x)) return std::string("nan");
    if (std::isinf(x)) return std::string(x > 0 ? "inf" : "-inf");
    return number(x, false);
  };
  if (value.real() == 0 && !std::signbit(value.real())) return "\"" + part(value.imag()) + "j\"";
  std::string imag = part(value.imag());
  if (imag[0] != '-') imag = "+" + imag;
  return "\"(" + part(value.real()) + imag + "j)\"";
}

// dtypes.py: c10's name in lower case → the range text's name.
const std::string& dtype_name(at::ScalarType type) {
  static auto* names = [] {
    // clang-format off
    static const std::pair<const char*, const char*> known[] = {
        {"double", "f64"}, {"float", "f32"}, {"half", "f16"}, {"bfloat16", "bf16"},
        {"float8_e4m3fn", "f8e4m3fn"}, {"float8_e5m2", "f8e5m2"},
        {"float8_e4m3fnuz", "f8e4m3fnuz"}, {"float8_e5m2fnuz", "f8e5m2fnuz"},
        {"float8_e8m0fnu", "f8e8m0fnu"}, {"float4_e2m1fn_x2", "u8"}, {"long", "i64"},
        {"int", "i32"}, {"short", "i16"}, {"char", "i8"}, {"uint64", "u64"}, {"uint32", "u32"},
        {"uint16", "u16"}, {"byte", "u8"}, {"bool", "bool"}, {"complexhalf", "c32"},
        {"complexfloat", "c64"}, {"complexdouble", "c128"}};
    // clang-format on
    auto* made = new std::array<std::string, size_t(at::ScalarType::NumOptions) + 1>;
    for (size_t one = 0; one < made->size(); ++one) {
      std::string name = c10::toString(at::ScalarType(one));
      for (char& c : name) c = char(std::tolower(c));
      for (auto& [from, to] : known)
        if (name == from) {
          name = to;
          break;
        }
      (*made)[one] = name;
    }
    return made;
  }();
  return (*names)[std::min(size_t(type), names->size() - 1)];
}

std::string dims(c10::IntArrayRef values) {
  std::string out;
  for (size_t at = 0; at < values.size(); ++at) {
    if (at) out += ',';
    out += std::to_string(values[at]);
  }
  return out;
}

bool row_major(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  int64_t expected = 1;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    if (sizes[dim] == 0) return true;
    if (sizes[dim] != 1) {
      if (strides[dim] != expected) return false;
      expected *= sizes[dim];
    }
  }
  return true;
}

// call.py: the range text's names of layouts without strides; null for a strided tensor.
const char* strideless_name(const c10::TensorImpl* impl) {
  switch (impl->layout()) {
    case c10::Layout::Strided: return impl->is_nested() ? "nested" : nullptr;
    case c10::Layout::Sparse: return "coo";
    case c10::Layout::SparseCsr: return "csr";
    case c10::Layout::SparseCsc: return "csc";
    case c10::Layout::SparseBsr: return "bsr";
    case c10::Layout::SparseBsc: return "bsc";
    case c10::Layout::Mkldnn: return "mkldnn";
    case c10::Layout::Jagged: return "jagged";
    default: return "other";
  }
}

// Formats a tensor's dtype, sizes, and strides or layout. With ``counted``, also the number of elements that
// a sparse tensor stores.
std::string tensor_text(const at::Tensor& tensor, bool counted = false) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  std::string out = dtype_name(c10::typeMetaToScalarType(impl->dtype()));
  if (plain(impl)) {
    auto sizes = impl->sizes_default();
    auto strides = impl->strides_default();
    out += "[" + dims(sizes) + "]";
    if (!row_major(sizes, strides)) out += "{s:" + dims(strides) + "}";
    return out;
  }
  std::string layout;
  if (const char* name = strideless_name(impl)) {
    layout = std::string("{") + name;
    int64_t many = counted && has_sizes(impl) ? stored(impl) : -1;
    if (many >= 0) layout += ":" + std::to_string(many);
    layout += "}";
  }
  if (has_sizes(impl)) return out + "[" + dims(impl->sizes()) + "]" + layout;
  out += "[";
  for (int64_t dim = 0, count = impl->is_nested() ? impl->dim() : impl->sym_sizes_default().size();
      dim < count; ++dim)
    out += dim ? ",?" : "?";
  return out + "]" + layout;
}

bool is_wrapped(const at::Tensor& tensor) {
  return tensor.defined() && tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

// Whether the value is or has a sparse or nested tensor: then the sizes of results depend on data, for
// example of ``values()``.
bool holds_data(const IValue& value) {
  if (value.isTensor()) {
    const c10::TensorImpl* impl = value.toTensor().unsafeGetTensorImpl();
    return value.toTensor().defined() && !plain(impl) && impl->layout() != c10::Layout::Mkldnn;
  }
  if (!value.isList()) return false;
  for (const IValue& one : value.toListRef())
    if (holds_data(one)) return true;
  return false;
}

// Writes an input; ``_`` for a number in the place of a tensor.
void write_arg(std::vector<std::string>& pieces, const IValue& value, bool counted) {
  auto list = [&](size_t count, auto&& item) {
    std::vector<std::vector<std::string>> items(count);
    bool same = count > 1;
    for (size_t at = 0; at < count; ++at) {
      item(items[at], at);
      same = same && items[at] == items[0];
    }
    pieces.push_back("[");
    for (size_t at = 0; at < (same ? 1 : count); ++at) {
      if (at) pieces.push_back(", ");
      pieces.insert(pieces.end(), items[at].begin(), items[at].end());
    }
    pieces.push_back(same ? "]*" + std::to_string(count) : "]");
  };
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    pieces.push_back(tensor.defined() && !is_wrapped(tensor) ? tensor_text(tensor, counted) : "_");
  } else if (value.isTensorList()) {
    auto tensors = value.toTensorVector();
    list(tensors.size(), [&](auto& into, size_t at) { write_arg(into, IValue(tensors[at]), counted); });
  } else if (value.isList()) {
    auto values = value.toListRef();
    list(values.size(), [&](auto& into, size_t at) { write_arg(into, values[at], counted); });
  } else {
    pieces.push_back("_");
  }
}

bool has_number(const IValue& value) {
  if (value.isList()) {
    for (const IValue& one : value.toListRef())
      if (has_number(one)) return true;
    return false;
  }
  return value.isInt() || value.isDouble() || value.isComplexDouble();
}

std::string param_text(const IValue& value, int depth = 0) {
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (value.isInt()) return std::to_string(value.toInt());
  if (value.isDouble()) return number(value.toDouble());
  if (value.isComplexDouble()) return complex_number(value.toComplexDouble());
  if (value.isString()) return json(value.toStringView());
  if (value.isDevice()) return json(value.toDevice().str());
  if (value.isNone()) return "null";
  if (value.isList() && depth < 4) {
    auto values = value.toListRef();
    std::string out = "[";
    for (size_t at = 0; at < values.size() && at < 256; ++at) {
      if (at) out += ", ";
      out += param_text(values[at], depth + 1);
    }
    if (values.size() > 256) out += ", \"\xe2\x80\xa6\"";
    return out + "]";
  }
  if (value.isGenerator()) return "\"generator\"";
  if (value.isSymInt() || value.isSymFloat() || value.isSymBool()) return "\"?\"";
  if (const std::string* name = object_name(value)) return json(*name);
  return "\"object\"";
}

template <class Value>
Value value_at(const void* data) {
  Value value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

std::string wrapped_text(const at::Tensor& tensor) {
  const void* data = number_data(tensor.unsafeGetTensorImpl());
  if (!data) return "\"?\"";
  switch (tensor.scalar_type()) {
    case at::kDouble: return number(value_at<double>(data));
    case at::kLong: return std::to_string(value_at<int64_t>(data));
    case at::kBool: return value_at<bool>(data) ? "true" : "false";
    case at::kComplexDouble: return complex_number(value_at<c10::complex<double>>(data));
    case at::kFloat: return number(value_at<float>(data));
    default: return "\"?\"";
  }
}

const char* layout_name(int64_t layout) {
  switch (c10::Layout(layout)) {
    case c10::Layout::Strided: return "\"strided\"";
    case c10::Layout::Sparse: return "\"sparse_coo\"";
    case c10::Layout::SparseCsr: return "\"sparse_csr\"";
    case c10::Layout::SparseCsc: return "\"sparse_csc\"";
    case c10::Layout::SparseBsr: return "\"sparse_bsr\"";
    case c10::Layout::SparseBsc: return "\"sparse_bsc\"";
    case c10::Layout::Mkldnn: return "\"_mkldnn\"";
    case c10::Layout::Jagged: return "\"jagged\"";
    default: return "\"?\"";
  }
}

const char* memory_format_name(int64_t format) {
  switch (c10::MemoryFormat(format)) {
    case c10::MemoryFormat::Contiguous: return "\"contiguous_format\"";
    case c10::MemoryFormat::Preserve: return "\"preserve_format\"";
    case c10::MemoryFormat::ChannelsLast: return "\"channels_last\"";
    case c10::MemoryFormat::ChannelsLast3d: return "\"channels_last_3d\"";
    default: return "\"?\"";
  }
}

// Sets ``found`` to the device of the first tensor not on the CPU, else to "cpu"; unchanged without tensors.
void find_device(std::string& found, const IValue& value) {
  auto one = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || is_wrapped(tensor)) return;
    if (found.empty() || found == "cpu") found = tensor.device().str();
  };
  if (!found.empty() && found != "cpu") return;
  if (value.isTensor()) {
    one(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) one(tensor);
  } else if (value.isList()) {
    for (const IValue& item : value.toListRef()) find_device(found, item);
  }
}

void device_piece(std::vector<std::string>& pieces, const std::string& device) {
  if (!device.empty()) pieces.push_back(" on " + (plain_name(device) ? device : json(device)));
}

// Returns the total bytes of the first pieces in [``from``, ``to``) that together fit into ``room``. Sets
// ``end`` to the index of the first piece that does not fit.
size_t fitting(const std::vector<std::string>& pieces, size_t from, size_t to, size_t room, size_t& end) {
  size_t used = 0;
  for (end = from; end < to && used + pieces[end].size() <= room; ++end) used += pieces[end].size();
  return used;
}

// Joins the pieces, as rangetext.py does: a text over ``limit`` is cut before ``place``, the index where the
// device and the frames begin.
std::string joined(const std::vector<std::string>& pieces, size_t place, size_t limit) {
  size_t size = 0;
  for (const auto& piece : pieces) size += piece.size();
  size_t end = place, last = pieces.size();
  bool cut = size > limit;
  if (cut) {
    size_t used = fitting(pieces, place, pieces.size(), limit / 2, last);
    fitting(pieces, 0, place, limit - std::strlen(kCut) - used, end);
  }
  std::string out;
  out.reserve(std::min(size, limit));
  for (size_t at = 0; at < end; ++at) out += pieces[at];
  if (cut) {
    while (!out.empty() && out.back() == ' ') out.pop_back();
    out += kCut;
  }
  for (size_t at = place; at < last; ++at) out += pieces[at];
  return out;
}

// ------------------------------------------------------------------------ texts, under the lock

#ifdef OPSCOPE_NVTX
// Registers the text with NVTX, once in this process.
void register_text(Global& g, Text& text) {
  text.process = g_nvtx_process.load(std::memory_order_relaxed);
  text.handle = nullptr;
  if (g.registered >= kMaxRegistered) return;
  ++g.registered;
  text.handle = nvtxDomainRegisterStringA(g.nvtx, text.shown.data());
}
#endif

// Fills ``text``. ``place``: the index of the piece where the device and the frames begin. ``whole``: the
// joined pieces, if they are in ``Kept`` already; they are the text unless it must be cut.
void write_text(Global& g, Text& text, Category category, const Pieces& pieces, size_t place,
    std::string_view whole, bool kept) {
  auto store = [&](std::string chars) -> std::string_view {
    if (kept) return g.kept.copy(chars);
    return text.own.emplace_back(std::move(chars));
  };
  text.own.reserve(kept ? 0 : 2);  // so that no string moves
  text.id = g.next_text++;
  text.category = category;
  bool all = !whole.empty() && whole.size() <= kRecordLimit;
  text.text = all ? whole : store(joined(pieces, place, kRecordLimit));
#ifdef OPSCOPE_NVTX
  if (g.nvtx) {
    std::string shown = joined(pieces, place, kTextLimit);
    for (size_t at; (at = shown.find('\0')) != std::string::npos;) shown.replace(at, 1, "\\0");
    text.shown = shown == text.text ? text.text : store(std::move(shown));
    register_text(g, text);
  }
#endif
}

// Returns the text of these pieces; makes it where it is new.
Text* intern(Global& g, Entry& entry, const Pieces& pieces, size_t place) {
  if (!entry.kept) {
    auto& text = *entry.own.emplace_back(std::make_unique<Text>());
    write_text(g, text, entry.category, pieces, place, {}, false);
    return &text;
  }
  std::string key(1, char('0' + entry.category));
  for (const auto& piece : pieces) key += piece;
  auto found = g.texts.find(key);
  if (found != g.texts.end()) return found->second;
  std::string_view kept = g.kept.copy(key);
  Text* text = g.kept.make<Text>();
  write_text(g, *text, entry.category, pieces, place, kept.substr(1), true);
  g.texts.emplace(kept, text);
  return text;
}

// Adds the text to the strings of recording ``epoch``, unless they have it.
void announce(Global& g, Text& text, int64_t epoch) {
  if (text.epoch.load() == epoch) return;
  g.strings += "[" + std::to_string(text.id) + ", \"" + g.domain + "\", " +
      (text.category ? json(kCategoryNames[text.category]) : std::string("null")) + ", " +
      json(std::string(text.text)) + "]\n";
  text.epoch.store(epoch);
}

}  // namespace
