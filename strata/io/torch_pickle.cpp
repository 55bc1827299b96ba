#include "strata/io/torch_pickle_inl.h"

#include <cstring>
#include <iterator>
#include <map>
#include <unordered_map>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/torch_file_inl.h"

namespace strata::io {
namespace {

constexpr std::string_view kOp = "PyTorch file";
using Kind = PickleValue::Kind;
using Value = PickleValue;
constexpr std::string_view kKinds[] = {"a mark",   "None",    "a bool", "an integer", "a float",   "a text",
                                       "a global", "a tuple", "a list", "a dict",     "a storage", "a tensor"};

// What a global does when it is called, or stands for.
enum class Global : uint8_t { ordered_dict, tensor, parameter, untyped_storage, type };
struct GlobalRecord {
  std::string_view module, name;
  Global global;
  int version = 0;  // of the function that describes a tensor
};
constexpr GlobalRecord kGlobals[] = {
    {"collections", "OrderedDict", Global::ordered_dict},
    {"torch._utils", "_rebuild_tensor", Global::tensor, 1},
    {"torch._utils", "_rebuild_tensor_v2", Global::tensor, 2},
    {"torch._utils", "_rebuild_tensor_v3", Global::tensor, 3},
    {"torch._utils", "_rebuild_parameter", Global::parameter},
    {"torch.storage", "UntypedStorage", Global::untyped_storage},
    {"torch", "UntypedStorage", Global::untyped_storage},
};

// A global as a value: a record above, or a StoredType of the table.
struct FoundGlobal {
  const GlobalRecord* record = nullptr;
  const StoredType* type = nullptr;
};

class Machine {
 public:
  Machine(std::string_view text, std::string_view source,
          const std::function<PickleStorage(std::string_view)>& find_storage)
      : text_(text), source_(source), find_storage_(find_storage) {}

  Pickle run() {
    while (step()) {
    }
    return std::move(out_);
  }

 private:
  // ---- reading ----
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw IoError(kOp, cat(quote(source_), ": its pickle, byte ", op_at_, ": ", parts...));
  }
  std::string_view take(uint64_t n) {
    if (n > text_.size() - at_) fail("ends inside of a value");
    const std::string_view part = text_.substr(at_, static_cast<size_t>(n));
    at_ += static_cast<size_t>(n);
    return part;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view line() {
    const size_t end = text_.find('\n', at_);
    if (end == std::string_view::npos) fail("ends inside of a line");
    const std::string_view part = text_.substr(at_, end - at_);
    at_ = end + 1;
    return part;
  }

  // ---- the stack ----
  void push(const Value& v) {
    if (stack_.size() == kMaxPickleStack) fail("more than ", kMaxPickleStack, " values on the stack");
    stack_.push_back(v);
  }
  void push(Kind kind, int64_t integer = 0) {
    Value v;
    v.kind = kind;
    v.integer = integer;
    push(v);
  }
  void push_text(std::string_view text) {
    if (text.size() > UINT32_MAX) fail("a text of ", text.size(), " bytes");
    Value v;
    v.kind = Kind::text;
    v.length = static_cast<uint32_t>(text.size());
    v.text = text.data();
    push(v);
  }
  void push_index(Kind kind, size_t index) {
    Value v;
    v.kind = kind;
    v.index = index;
    push(v);
  }
  Value pop() {
    if (stack_.empty() || stack_.back().kind == Kind::mark) fail("takes a value where there is none");
    const Value v = stack_.back();
    stack_.pop_back();
    return v;
  }
  const Value& top() const {
    if (stack_.empty() || stack_.back().kind == Kind::mark) fail("takes a value where there is none");
    return stack_.back();
  }
  // The values above the last mark, which goes with them.
  std::vector<Value> pop_to_mark() {
    if (marks_.empty()) fail("takes values where there is no mark");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()) + 1;
    std::vector<Value> values(first, stack_.end());
    stack_.erase(first - 1, stack_.end());
    marks_.pop_back();
    return values;
  }
  const Value& want(const Value& v, Kind kind, std::string_view what) const {
    if (v.kind != kind) fail(what, " is ", kKinds[static_cast<int>(v.kind)], ", not ", kKinds[static_cast<int>(kind)]);
    return v;
  }

  // ---- containers ----
  void count_container() {
    if (++containers_ > kMaxPickleContainers) fail("makes more than ", kMaxPickleContainers, " containers");
  }
  void push_sequence(Kind kind, std::vector<Value> values) {
    count_container();
    out_.sequences.push_back(std::move(values));
    push_index(kind, out_.sequences.size() - 1);
  }
  void push_dict() {
    count_container();
    out_.dicts.emplace_back();
    push_index(Kind::dict, out_.dicts.size() - 1);
  }
  void append(const std::vector<Value>& values) {
    auto& list = out_.sequences[want(top(), Kind::list, "what is appended to").index];
    list.insert(list.end(), values.begin(), values.end());
  }
  void set_items(const std::vector<Value>& values) {
    if (values.size() % 2 != 0) fail("a key without a value");
    auto& dict = out_.dicts[want(top(), Kind::dict, "what items are set in").index];
    for (size_t i = 0; i < values.size(); i += 2) dict.emplace_back(values[i], values[i + 1]);
  }

  // ---- globals ----
  void push_global(std::string_view module, std::string_view name) {
    FoundGlobal found;
    for (const GlobalRecord& g : kGlobals)
      if (g.module == module && g.name == name) found.record = &g;
    if (!found.record && module == "torch") found.type = find_torch_type(name);
    if (!found.record && !found.type)
      fail("wants ", quote(cat(module, ".", name)), ", which is not run: only tensors are read");
    globals_.push_back(found);
    push_index(Kind::global, globals_.size() - 1);
  }
  const FoundGlobal& global(const Value& v, std::string_view what) const {
    return globals_[want(v, Kind::global, what).index];
  }

  void call() {
    const Value arguments = pop(), function = pop();
    const FoundGlobal g = global(function, "what is called");
    const std::vector<Value>& values = out_.sequences[want(arguments, Kind::tuple, "the arguments").index];
    if (!g.record || g.record->global == Global::untyped_storage) fail("calls a type");
    if (g.record->global == Global::ordered_dict) {
      make_ordered_dict(values);
    } else if (g.record->global == Global::parameter) {
      if (values.size() != 3) fail("_rebuild_parameter has ", values.size(), " arguments, 3 are wanted");
      push(want(values[0], Kind::tensor, "a parameter's data"));
    } else {
      make_tensor(g.record->version, values);
    }
  }
  // Of nothing, or of a list of pairs.
  void make_ordered_dict(const std::vector<Value>& values) {
    if (values.size() > 1) fail("OrderedDict has ", values.size(), " arguments, 1 at most is wanted");
    std::vector<Value> items;
    if (!values.empty())
      for (const Value& pair : out_.sequences[want(values[0], Kind::list, "OrderedDict's argument").index]) {
        const bool sequence = pair.kind == Kind::list || pair.kind == Kind::tuple;
        count_container();  // a list may be given again and again
        if (!sequence || out_.sequences[pair.index].size() != 2) fail("OrderedDict's argument holds no pair");
        items.insert(items.end(), out_.sequences[pair.index].begin(), out_.sequences[pair.index].end());
      }
    push_dict();
    set_items(items);
  }

  // ---- storages and tensors ----
  void load_storage() {
    const Value id = pop();
    const std::vector<Value>& parts = out_.sequences[want(id, Kind::tuple, "a persistent id").index];
    if (parts.size() != 5 || parts[0].kind != Kind::text || parts[0].view() != "storage")
      fail("a persistent id is no storage");
    const FoundGlobal& type = global(parts[1], "a storage's type");
    if (type.record && type.record->global != Global::untyped_storage) fail("a storage's type is a function");
    const std::string_view key = want(parts[2], Kind::text, "a storage's key").view();
    const int64_t numel = want(parts[4], Kind::integer, "a storage's size").integer;
    const auto [place, fresh] = storages_.emplace(key, out_.storages.size());
    if (fresh) {
      PickleStorage s = find_storage_(key);
      s.type = type.type;
      out_.storages.push_back(s);
    }
    const PickleStorage& s = out_.storages[place->second];
    if (s.type != type.type) fail("storage ", quote(key), " has two types");
    const int64_t element = s.type ? s.type->block_bytes : 1;
    int64_t bytes = 0;
    if (numel < 0 || __builtin_mul_overflow(numel, element, &bytes) || static_cast<uint64_t>(bytes) != s.nbytes)
      fail("storage ", quote(key), " is said to have ", numel, " elements of ", element, " bytes, its entry has ",
           s.nbytes, " bytes");
    push_index(Kind::storage, place->second);
  }
  std::vector<int64_t> sizes(const Value& v, std::string_view what) const {
    if (v.kind != Kind::tuple && v.kind != Kind::list) want(v, Kind::tuple, what);
    const std::vector<Value>& values = out_.sequences[v.index];
    if (values.size() > kMaxDims) fail(what, " has ", values.size(), " dimensions, at most ", kMaxDims, " are read");
    std::vector<int64_t> numbers;
    for (const Value& n : values) {
      numbers.push_back(want(n, Kind::integer, what).integer);
      if (numbers.back() < 0) fail(what, " has a negative number");
    }
    return numbers;
  }
  // Arguments: storage, offset, sizes, strides, whether it wants a gradient, hooks; v3: dtype; metadata.
  void make_tensor(int version, const std::vector<Value>& a) {
    const size_t least = version == 1 ? 4 : version == 2 ? 6 : 7;
    if (a.size() < least || a.size() > least + 1)
      fail("a tensor is described by ", a.size(), " arguments, ", least, " are wanted");
    if (out_.tensors.size() == kMaxPickleTensors) fail("more than ", kMaxPickleTensors, " tensors");
    PickleTensor t;
    t.storage = want(a[0], Kind::storage, "a tensor's storage").index;
    const PickleStorage& s = out_.storages[t.storage];
    t.type = version == 3 ? global(a[6], "a tensor's dtype").type : s.type;
    if (!t.type) fail("a tensor's dtype is no dtype");
    t.first = want(a[1], Kind::integer, "a tensor's offset").integer;
    const std::vector<int64_t> shape = sizes(a[2], "a tensor's shape"), strides = sizes(a[3], "a tensor's strides");
    if (shape.size() != strides.size()) fail("a tensor has ", shape.size(), " sizes and ", strides.size(), " strides");
    t.shape = Shape(shape);
    t.strides = Strides(strides);
    check_view(t, s);
    out_.tensors.push_back(t);
    push_index(Kind::tensor, out_.tensors.size() - 1);
  }
  void check_view(const PickleTensor& t, const PickleStorage& s) const {
    const int64_t held = static_cast<int64_t>(s.nbytes / static_cast<uint64_t>(t.type->block_bytes));
    int64_t last = t.first, numel = 1;
    bool counted = t.first >= 0, empty = false;
    for (int i = 0; i < t.shape.size(); ++i) {
      empty = empty || t.shape[i] == 0;
      int64_t step = 0;
      counted = counted && !__builtin_mul_overflow(numel, t.shape[i], &numel) &&
                (t.shape[i] == 0 || (!__builtin_mul_overflow(t.shape[i] - 1, t.strides[i], &step) &&
                                     !__builtin_add_overflow(last, step, &last)));
    }
    if (!counted || (!empty && last >= held))
      fail("a view of shape ", t.shape, ", strides ", t.strides, " from ", t.first, " on leaves its storage of ", held,
           " elements");
    if (numel > held) fail("a view of shape ", t.shape, " shows elements more than once: its storage has ", held);
  }

  // ---- the memo ----
  void remember(uint64_t key) {
    memo_[key] = top();
    if (memo_.size() > kMaxPickleContainers) fail("remembers more than ", kMaxPickleContainers, " values");
  }
  void recall(uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) fail("recalls value ", key, ", which was not remembered");
    push(found->second);
  }

  // A long integer: little-endian, two's complement.
  void push_long(uint64_t n) {
    const std::string_view bytes = take(n);
    if (n > 8) fail("an integer of ", n, " bytes");
    uint64_t value = !bytes.empty() && (bytes.back() & 0x80) ? ~uint64_t{0} : 0;
    for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    push(Kind::integer, static_cast<int64_t>(value));
  }

  // One opcode; false at the end.
  bool step() {
    op_at_ = at_;
    const auto op = number<uint8_t>();
    switch (op) {
      case 0x80:  // PROTO
        if (const auto version = number<uint8_t>(); version > 5) fail("protocol ", int{version}, ", at most 5 is read");
        return true;
      case 0x95:  // FRAME
        take(8);
        return true;
      case '.':  // STOP
        out_.root = pop();
        return false;
      case '(':  // MARK
        marks_.push_back(stack_.size());
        push(Kind::mark);
        return true;
      case '0':  // POP
        pop();
        return true;
      case '1':  // POP_MARK
        pop_to_mark();
        return true;
      case '2':  // DUP
        push(Value(top()));
        return true;
      case 'N':
        push(Kind::none);
        return true;
      case 0x88:  // NEWTRUE
        push(Kind::boolean, 1);
        return true;
      case 0x89:  // NEWFALSE
        push(Kind::boolean, 0);
        return true;
      case 'J':  // BININT
        push(Kind::integer, number<int32_t>());
        return true;
      case 'K':  // BININT1
        push(Kind::integer, number<uint8_t>());
        return true;
      case 'M':  // BININT2
        push(Kind::integer, number<uint16_t>());
        return true;
      case 0x8a:  // LONG1
        push_long(number<uint8_t>());
        return true;
      case 'G': {  // BINFLOAT, big-endian
        const auto bits = __builtin_bswap64(number<uint64_t>());
        Value v;
        v.kind = Kind::real;
        std::memcpy(&v.real, &bits, sizeof bits);
        push(v);
        return true;
      }
      case 0x8c:  // SHORT_BINUNICODE
      case 'U':   // SHORT_BINSTRING
      case 'C':   // SHORT_BINBYTES
        push_text(take(number<uint8_t>()));
        return true;
      case 'X':  // BINUNICODE
      case 'T':  // BINSTRING
      case 'B':  // BINBYTES
        push_text(take(number<uint32_t>()));
        return true;
      case 0x8d:  // BINUNICODE8
      case 0x8e:  // BINBYTES8
        push_text(take(number<uint64_t>()));
        return true;
      case ')':  // EMPTY_TUPLE
        push_sequence(Kind::tuple, {});
        return true;
      case 't':  // TUPLE
        push_sequence(Kind::tuple, pop_to_mark());
        return true;
      case 0x85:    // TUPLE1
      case 0x86:    // TUPLE2
      case 0x87: {  // TUPLE3
        std::vector<Value> values(op - 0x84u);
        for (size_t i = values.size(); i-- > 0;) values[i] = pop();
        push_sequence(Kind::tuple, std::move(values));
        return true;
      }
      case ']':  // EMPTY_LIST
        push_sequence(Kind::list, {});
        return true;
      case 'l':  // LIST
        push_sequence(Kind::list, pop_to_mark());
        return true;
      case 'a': {  // APPEND
        const Value v = pop();
        append({v});
        return true;
      }
      case 'e':  // APPENDS
        append(pop_to_mark());
        return true;
      case '}':  // EMPTY_DICT
        push_dict();
        return true;
      case 'd': {  // DICT
        const std::vector<Value> items = pop_to_mark();
        push_dict();
        set_items(items);
        return true;
      }
      case 's': {  // SETITEM
        const Value value = pop(), key = pop();
        set_items({key, value});
        return true;
      }
      case 'u':  // SETITEMS
        set_items(pop_to_mark());
        return true;
      case 'q':  // BINPUT
        remember(number<uint8_t>());
        return true;
      case 'r':  // LONG_BINPUT
        remember(number<uint32_t>());
        return true;
      case 0x94:  // MEMOIZE
        remember(memo_.size());
        return true;
      case 'h':  // BINGET
        recall(number<uint8_t>());
        return true;
      case 'j':  // LONG_BINGET
        recall(number<uint32_t>());
        return true;
      case 'c': {  // GLOBAL
        const std::string_view module = line(), name = line();
        push_global(module, name);
        return true;
      }
      case 0x93: {  // STACK_GLOBAL
        const Value name = pop(), module = pop();
        push_global(want(module, Kind::text, "a module").view(), want(name, Kind::text, "a global's name").view());
        return true;
      }
      case 'R':  // REDUCE
        call();
        return true;
      case 'Q':  // BINPERSID
        load_storage();
        return true;
      case 'b': {  // BUILD: attributes of an OrderedDict (a module's _metadata), which are not wanted
        pop();
        want(top(), Kind::dict, "what attributes are set of");
        return true;
      }
      default:
        fail("opcode ", int{op}, ", which a dict of tensors does not need");
    }
  }

  std::string_view text_, source_;
  const std::function<PickleStorage(std::string_view)>& find_storage_;
  size_t at_ = 0, op_at_ = 0, containers_ = 0;
  std::vector<Value> stack_;
  std::vector<size_t> marks_;
  std::vector<FoundGlobal> globals_;
  std::unordered_map<uint64_t, Value> memo_;
  std::map<std::string_view, size_t> storages_;
  Pickle out_;
};

}  // namespace

Pickle read_pickle(std::string_view text, std::string_view source,
                   const std::function<PickleStorage(std::string_view key)>& find_storage) {
  return Machine(text, source, find_storage).run();
}

}  // namespace strata::io
