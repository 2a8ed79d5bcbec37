// The user's lines of a call, as source.py finds them; the only place where the GIL is taken.

#pragma once

#include "ops.h"

namespace {

// ---------------------------------------------------------------------------------- frames

struct CodeInfo {
  bool user = false;
  std::string file;
};
struct PlaceKey {
  std::array<uint64_t, 2 * kFrames> parts{};
  bool operator==(const PlaceKey& other) const { return parts == other.parts; }
};
struct PlaceHash {
  size_t operator()(const PlaceKey& key) const {
    Hasher hash{1};
    for (uint64_t part : key.parts) hash.add(part);
    return hash.state;
  }
};
// Under the GIL only. Code objects in it are kept alive, so that an address stays one code's.
struct Sources {
  PyObject* classify = nullptr;
  std::unordered_map<PyObject*, CodeInfo> codes;
  std::unordered_map<PlaceKey, const Place*, PlaceHash> places;
};
Sources& sources() {
  static Sources* one = new Sources;
  return *one;
}
const Place kNowhere{};

const CodeInfo& code_info(Sources& all, PyObject* code) {
  auto found = all.codes.find(code);
  if (found != all.codes.end()) return found->second;
  CodeInfo info;
  if (all.classify) {
    PyObject* file = PyObject_CallFunctionObjArgs(all.classify, code, nullptr);
    const char* text = file ? PyBytes_AsString(file) : nullptr;
    if (!text) {
      PyErr_Clear();
    } else if (*text) {
      info.user = true;
      info.file = plain_name(text) ? text : json(text);
    }
    if (file) Py_DecRef(file);
  }
  if (all.codes.size() >= kMaxPlaces) {
    // Nothing is said of code made later: entries must not be dropped while places name them.
    static const CodeInfo foreign;
    return foreign;
  }
  Py_IncRef(code);
  return all.codes.emplace(code, std::move(info)).first->second;
}

const Place* find_place() {
  if (!PyGILState_GetThisThreadState()) return &kNowhere;  // no thread of Python's
  int gil = PyGILState_Ensure();
  Sources& all = sources();
  PlaceKey key;
  PyObject* user[kFrames];
  PyObject* codes[kFrames];
  int count = 0;
  PyObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  for (int depth = 0; frame && depth < kFrameDepth && count < kFrames; ++depth) {
    PyObject* code = PyFrame_GetCode(frame);
    PyObject* back = PyFrame_GetBack(frame);
    if (code_info(all, code).user) {
      int at = PyFrame_GetLasti ? PyFrame_GetLasti(frame) : PyFrame_GetLineNumber(frame);
      key.parts[2 * count] = uint64_t(code);
      key.parts[2 * count + 1] = uint64_t(at) + 1;
      codes[count] = code;
      user[count++] = frame;
    } else {
      Py_DecRef(frame);
    }
    Py_DecRef(code);  // the frame, or our table, keeps it
    frame = back;
  }
  if (frame) Py_DecRef(frame);
  const Place* place = &kNowhere;
  if (count) {
    auto found = all.places.find(key);
    if (found != all.places.end()) {
      place = found->second;
    } else if (all.places.size() < kMaxPlaces) {
      auto* made = new Place;
      for (int at = 0; at < count; ++at)
        made->pieces.push_back((at ? " < " : " @") + code_info(all, codes[at]).file + ":" +
                               std::to_string(PyFrame_GetLineNumber(user[at])));
      all.places.emplace(key, made);
      place = made;
    }
  }
  for (int at = 0; at < count; ++at) Py_DecRef(user[at]);
  PyGILState_Release(gil);
  return place;
}

}  // namespace
