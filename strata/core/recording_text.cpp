// A Recording as text for files.

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>

#include "strata/core/recording.h"

namespace strata {
namespace {

constexpr std::string_view kFirstLine = "strata-recording 1";
constexpr std::string_view kForms[] = {"fresh", "inplace", "out"};

// ---- writing

void put(std::string& s, double v) {
  char text[32];
  s.append(text, std::to_chars(text, text + sizeof text, v).ptr);
}
void put(std::string& s, const Dims& d) {
  s += '[';
  for (int i = 0; i < d.size(); ++i) s += cat(i ? "," : "", d[i]);
  s += ']';
}
void put_quoted(std::string& s, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  s += '"';
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\' || u < 0x20) {
      s += '\\';
      s += kHex[u >> 4];
      s += kHex[u & 15];
    } else {
      s += c;
    }
  }
  s += '"';
}
void put_bytes(std::string& s, const Tensor& given) {
  if (!given.defined()) return void(s += " -");
  constexpr char kHex[] = "0123456789abcdef";
  const Tensor here = given.to(Device::cpu());
  const uint8_t* p = here.numel() ? here.data<uint8_t>() : nullptr;
  s += " =";
  for (int64_t i = 0; i < here.numel(); ++i) {
    s += kHex[p[i] >> 4];
    s += kHex[p[i] & 15];
  }
}
void put(std::string& s, ValueIndex v) {
  s += v.at < 0 ? "t-" : cat("t", v.at);
}
void put(std::string& s, const std::vector<ValueIndex>& list) {
  s += cat("l", list.size());
  for (const ValueIndex v : list) s += v.at < 0 ? ":-" : cat(":", v.at);
}
void put(std::string& s, const RecordedArg& arg) {
  std::visit(
      [&](const auto& a) {
        using T = std::remove_cvref_t<decltype(a)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          s += '-';
        } else if constexpr (std::is_same_v<T, Scalar>) {
          s += 's';
          if (a.kind() == DType::f64) {
            s += 'f';
            put(s, a.to_double());
          } else {
            s += cat(a.kind() == DType::boolean ? "b" : "i", a.to_int());
          }
        } else if constexpr (std::is_same_v<T, int64_t>) {
          s += cat("i", a);
        } else if constexpr (std::is_same_v<T, double>) {
          s += 'f';
          put(s, a);
        } else if constexpr (std::is_same_v<T, bool>) {
          s += a ? "b1" : "b0";
        } else if constexpr (std::is_same_v<T, std::string>) {
          put_quoted(s, a);
        } else if constexpr (std::is_same_v<T, DType>) {
          s += cat("d", a);
        } else if constexpr (std::is_same_v<T, Device>) {
          s += cat("@", a);
        } else if constexpr (std::is_same_v<T, RngKey>) {
          s += cat("k", a.seed, ":", a.offset);
        } else {
          put(s, a);
        }
      },
      arg);
}

// ---- reading

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  [[noreturn]] void fail(std::string_view problem) const {
    throw IoError("Recording", cat("line ", line_, ", byte ", at_, ", ", field_, ": ", problem));
  }
  void check(bool ok, std::string_view problem) const {
    if (!ok) fail(problem);
  }
  // What is read from here on, for error texts.
  void field(std::string_view name) { field_ = name; }

  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool accept(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (accept(c)) return;
    fail(cat("expected ", c == '\n' ? "the end of the line" : std::string(1, c), got()));
  }
  void space() { expect(' '); }
  void end_line() {
    expect('\n');
    ++line_;
  }
  std::string_view word() {
    const size_t begin = at_;
    while (!at_end() && text_[at_] != ' ' && text_[at_] != '\n') ++at_;
    if (begin == at_) fail(cat("a word is missing", got()));
    return text_.substr(begin, at_ - begin);
  }
  void literal(std::string_view wanted) {
    if (!text_.substr(at_).starts_with(wanted)) fail(cat("expected '", wanted, "'", got()));
    at_ += wanted.size();
  }
  template <class T>
  T number(T low = std::numeric_limits<T>::lowest(), T high = std::numeric_limits<T>::max()) {
    T v{};
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
    if (error == std::errc::result_out_of_range) fail(cat("the number does not fit", got()));
    if (error != std::errc()) fail(cat("expected a number", got()));
    if constexpr (std::is_integral_v<T>) {
      if (v < low || v > high) fail(cat(v, " is not in ", low, " to ", high));
    }
    at_ = static_cast<size_t>(end - text_.data());
    return v;
  }
  // How many things of at least `least` bytes follow.
  size_t count(size_t least) { return static_cast<size_t>(number<uint64_t>(0, (text_.size() - at_) / least)); }
  Dims dims(int64_t low, int64_t high) {
    Dims d;
    expect('[');
    if (accept(']')) return d;
    do {
      check(d.size() < kMaxDims, "too many dimensions");
      d.push_back(number<int64_t>(low, high));
    } while (accept(','));
    expect(']');
    return d;
  }
  std::string quoted() {
    expect('"');
    std::string s;
    while (!accept('"')) {
      check(!at_end() && peek() != '\n', "the text has no end");
      if (accept('\\')) {
        const int high = hex(), low = hex();
        s += static_cast<char>(high << 4 | low);
      } else {
        s += text_[at_++];
      }
    }
    return s;
  }
  int hex() {
    const char c = peek();
    ++at_;
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    --at_;
    fail(cat("expected a digit of 0-9a-f", got()));
  }
  // The bytes of a storage, or none.
  Tensor bytes(int64_t n, Device device) {
    space();
    if (accept('-')) return {};
    expect('=');
    check(!device.is_meta(), "a storage on the meta device has no bytes");
    check(static_cast<uint64_t>(n) <= (text_.size() - at_) / 2, "bytes are missing");
    const Tensor t = empty({{n}, DType::u8, Device::cpu(), std::nullopt});
    uint8_t* p = n ? t.data<uint8_t>() : nullptr;
    for (int64_t i = 0; i < n; ++i) {
      const int high = hex(), low = hex();
      p[i] = static_cast<uint8_t>(high << 4 | low);
    }
    return device.is_cpu() ? t : t.to(device);
  }
  DType dtype() {
    return guarded([this] { return parse_dtype(std::string(name())); });
  }
  Device device() {
    return guarded([this] { return parse_device(std::string(name())); });
  }
  std::string_view name() {
    const size_t begin = at_;
    while (!at_end() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' || text_[at_] == ':'))
      ++at_;
    return text_.substr(begin, at_ - begin);
  }
  template <class F>
  auto guarded(F&& f) -> decltype(f()) {
    try {
      return f();
    } catch (const IoError&) {
      throw;
    } catch (const Error& e) {
      fail(e.what());
    }
  }

 private:
  std::string got() const {
    if (at_end()) return ", the text ends here";
    if (text_[at_] == '\n') return ", the line ends here";
    const auto c = static_cast<unsigned char>(text_[at_]);
    return c < 0x20 || c > 0x7e ? cat(", got byte ", static_cast<int>(c)) : cat(", got '", text_[at_], "'");
  }
  std::string_view text_, field_ = "the first line";
  size_t at_ = 0;
  int line_ = 1;
};

template <size_t N>
int one_of(Reader& in, const std::string_view (&names)[N]) {
  const std::string_view w = in.word();
  for (size_t i = 0; i < N; ++i)
    if (names[i] == w) return static_cast<int>(i);
  in.fail(cat("there is no '", w, "'"));
}

ValueIndex read_index(Reader& in, size_t values) {
  if (in.accept('-')) return {};
  return {in.number<int32_t>(0, static_cast<int32_t>(values) - 1)};
}

std::vector<ValueIndex> read_list(Reader& in, size_t values) {
  in.expect('l');
  std::vector<ValueIndex> all(in.count(2));
  for (ValueIndex& v : all) {
    in.expect(':');
    v = read_index(in, values);
  }
  return all;
}

RecordedArg read_arg(Reader& in, size_t values) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  switch (in.peek()) {
    case '-':
      in.expect('-');
      return std::monostate();
    case 't':
      in.expect('t');
      return read_index(in, values);
    case 'l':
      return read_list(in, values);
    case 's':
      in.expect('s');
      if (in.accept('f')) return Scalar(in.number<double>());
      if (in.accept('b')) return Scalar(in.number<int64_t>(0, 1) == 1);
      in.expect('i');
      return Scalar(in.number<int64_t>());
    case 'i':
      in.expect('i');
      return in.number<int64_t>();
    case 'f':
      in.expect('f');
      return in.number<double>();
    case 'b':
      in.expect('b');
      return in.number<int64_t>(0, 1) == 1;
    case '"':
      return in.quoted();
    case '[':
      return in.dims(std::numeric_limits<int64_t>::min(), kMost);
    case 'd':
      in.expect('d');
      return in.dtype();
    case '@':
      in.expect('@');
      return in.device();
    case 'k': {
      in.expect('k');
      RngKey key;
      key.seed = in.number<uint64_t>();
      in.expect(':');
      key.offset = in.number<uint64_t>();
      return key;
    }
    default:
      in.fail("an argument begins with one of - t l s i f b \" [ d @ k");
  }
}

// Whether an argument is of the schema's type. After None an argument has the kinds of SchemaType, in their order.
static_assert(std::variant_size_v<RecordedArg> == kNumSchemaKinds + 1 &&
              std::is_same_v<std::variant_alternative_t<SchemaType::tensor + 1, RecordedArg>, ValueIndex> &&
              std::is_same_v<std::variant_alternative_t<SchemaType::integers + 1, RecordedArg>, Dims> &&
              std::is_same_v<std::variant_alternative_t<SchemaType::key + 1, RecordedArg>, RngKey>);
bool fits(SchemaType type, const RecordedArg& a) {
  return std::holds_alternative<std::monostate>(a) ? type.optional : a.index() == size_t{type.kind} + 1;
}

RecordedCall read_call(Reader& in, const Recording& r, size_t at) {
  RecordedCall c;
  const size_t values = r.values.size();
  in.field("a call");
  in.literal("c ");
  in.field("a call's op");
  const std::string_view name = in.word();
  c.op = OpBase::find(name);
  if (!c.op) c.op = OpBase::find_unlisted(name);
  in.check(c.op != nullptr, cat("this program has no op '", name, "'"));
  in.space();
  in.field("a call's form");
  c.form = static_cast<Form>(one_of(in, kForms));
  in.space();
  in.field("a call's phase");
  constexpr std::string_view kPhases[] = {"forward", "backward", "update"};
  c.phase = static_cast<Phase>(one_of(in, kPhases));
  in.space();
  in.field("whether a call is composed");
  c.composed = in.number<int>(0, 1) == 1;
  in.space();
  in.field("a call's parent");
  c.parent = in.number<int32_t>(-1, static_cast<int32_t>(at) - 1);
  in.space();
  in.field("a call's stream");
  c.stream = in.number<int32_t>();
  in.space();
  in.field("a call's module");
  if (!in.accept('-')) c.module = memory::detail::module_name(in.quoted());
  in.space();
  in.field("a call's autocast");
  c.autocast = !in.accept('-');
  if (c.autocast) c.autocast_dtype = in.dtype();
  in.space();
  in.field("a call's operations");
  c.cost.flops = in.number<double>();
  in.space();
  in.field("a call's bytes");
  c.cost.bytes = in.number<double>();
  in.space();
  in.field("a call's seconds");
  c.seconds = in.number<double>();
  const std::vector<SchemaArg>& args = c.op->schema().args;
  for (const SchemaArg& arg : args) {
    const std::string what = cat("argument '", arg.name, "' of ", name);
    in.field(what);
    in.space();
    c.args.push_back(read_arg(in, values));
    in.check(fits(arg.type, c.args.back()), cat("it must be of type ", arg.type.text()));
  }
  in.field("a call's targets");
  in.space();
  c.targets = read_list(in, values);
  in.check(c.targets.empty() == (c.form == Form::fresh), "a call has targets unless it is fresh");
  in.field("a call's results");
  in.space();
  c.results = read_list(in, values);
  in.end_line();
  return c;
}

}  // namespace

std::string Recording::to_text() const {
  std::string s(kFirstLine);
  s += cat("\nstorages ", storages.size(), '\n');
  for (const RecordedStorage& a : storages) {
    s += cat("s ", a.nbytes, ' ', a.device, ' ', memory::name_of(a.tag), ' ', a.born, ' ', a.freed);
    put_bytes(s, a.given);
    s += '\n';
  }
  s += cat("values ", values.size(), '\n');
  for (const RecordedValue& v : values) {
    s += cat("v ", v.storage, ' ', v.dtype, ' ');
    put(s, v.shape);
    s += ' ';
    put(s, v.strides);
    s += cat(' ', v.offset, ' ', v.number ? 1 : 0, '\n');
  }
  s += cat("calls ", calls.size(), '\n');
  for (const RecordedCall& c : calls) {
    s += cat("c ", c.op->name(), ' ', kForms[static_cast<int>(c.form)], ' ', name_of(c.phase), ' ', c.composed ? 1 : 0,
             ' ', c.parent, ' ', c.stream, ' ');
    c.module ? put_quoted(s, *c.module) : void(s += '-');
    s += c.autocast ? cat(' ', c.autocast_dtype, ' ') : std::string(" - ");
    put(s, c.cost.flops);
    s += ' ';
    put(s, c.cost.bytes);
    s += ' ';
    put(s, c.seconds);
    for (const RecordedArg& a : c.args) {
      s += ' ';
      put(s, a);
    }
    s += ' ';
    put(s, c.targets);
    s += ' ';
    put(s, c.results);
    s += '\n';
  }
  s += cat("writes ", writes.size(), '\n');
  for (const RecordedWrite& w : writes) {
    s += cat("w ", w.call, ' ', w.storage);
    put_bytes(s, w.given);
    s += '\n';
  }
  s += "outside ";
  put(s, outside);
  return s + "\nend\n";
}

Recording Recording::from_text(std::string_view text) {
  Reader in(text);
  Recording r;
  in.literal(kFirstLine);
  in.end_line();
  in.field("the number of storages");
  in.literal("storages ");
  const size_t num_storages = in.count(8);
  in.end_line();
  for (size_t i = 0; i < num_storages; ++i) {
    RecordedStorage& s = r.storages.emplace_back();
    in.field("a storage's size");
    in.literal("s ");
    s.nbytes = in.number<int64_t>(0);
    in.space();
    in.field("a storage's device");
    s.device = in.device();
    in.space();
    in.field("a storage's tag");
    const std::string_view tag = in.word();
    int t = 0;
    while (t < memory::kNumTags && memory::name_of(static_cast<memory::Tag>(t)) != tag) ++t;
    in.check(t < memory::kNumTags, cat("there is no tag '", tag, "'"));
    s.tag = static_cast<memory::Tag>(t);
    in.space();
    in.field("the call that made a storage");
    s.born = in.number<int32_t>(-1);
    in.space();
    in.field("the call before which a storage was freed");
    s.freed = in.number<int32_t>(0);
    in.field("a storage's bytes");
    s.given = in.bytes(s.nbytes, s.device);
    in.check(!s.given.defined() || s.born < 0, "a storage that a call makes is given no bytes");
    in.end_line();
  }
  in.field("the number of values");
  in.literal("values ");
  const size_t num_values = in.count(8);
  in.end_line();
  for (size_t i = 0; i < num_values; ++i) {
    RecordedValue& v = r.values.emplace_back();
    constexpr int64_t kMost = int64_t{1} << 56;
    in.field("a value's storage");
    in.literal("v ");
    v.storage = in.number<int32_t>(0, static_cast<int32_t>(num_storages) - 1);
    in.space();
    in.field("a value's dtype");
    v.dtype = in.dtype();
    in.space();
    in.field("a value's shape");
    v.shape = in.dims(0, kMost);
    in.space();
    in.field("a value's strides");
    v.strides = in.dims(0, kMost);
    in.check(v.strides.size() == v.shape.size(), "there must be as many strides as sizes");
    in.space();
    in.field("a value's offset");
    v.offset = in.number<int64_t>(0, kMost);
    // The last element lies within the storage; nothing overflows on the way.
    int64_t last = v.offset, n = 1;
    bool inside = true;
    for (int d = 0; d < v.shape.size(); ++d) {
      int64_t reach = 0;
      inside = inside && !__builtin_mul_overflow(std::max<int64_t>(v.shape[d] - 1, 0), v.strides[d], &reach) &&
               !__builtin_add_overflow(last, reach, &last) && !__builtin_mul_overflow(n, v.shape[d], &n);
    }
    const int64_t elements = r.storages[static_cast<size_t>(v.storage)].nbytes / size_of(v.dtype);
    in.check(inside && (n == 0 || last < elements), cat("the value reaches past its storage of ",
                                                        r.storages[static_cast<size_t>(v.storage)].nbytes, " bytes"));
    in.space();
    in.field("whether a value is a number");
    v.number = in.number<int>(0, 1) == 1;
    in.end_line();
  }
  in.field("the number of calls");
  in.literal("calls ");
  const size_t num_calls = in.count(16);
  in.end_line();
  for (size_t i = 0; i < num_calls; ++i) r.calls.push_back(read_call(in, r, i));
  in.field("the number of writes");
  in.literal("writes ");
  const size_t num_writes = in.count(6);
  in.end_line();
  for (size_t i = 0; i < num_writes; ++i) {
    RecordedWrite& w = r.writes.emplace_back();
    in.field("the call before a write");
    in.literal("w ");
    w.call = in.number<int32_t>(i ? r.writes[i - 1].call : 0, static_cast<int32_t>(num_calls) - 1);
    in.space();
    in.field("the storage of a write");
    w.storage = in.number<int32_t>(0, static_cast<int32_t>(num_storages) - 1);
    in.field("the bytes of a write");
    const RecordedStorage& s = r.storages[static_cast<size_t>(w.storage)];
    w.given = in.bytes(s.nbytes, s.device);
    in.end_line();
  }
  in.field("the seconds outside calls");
  in.literal("outside ");
  r.outside = in.number<double>();
  in.end_line();
  in.field("the last line");
  in.literal("end\n");
  in.check(in.at_end(), "something follows the last line");
  for (const RecordedStorage& s : r.storages) {
    in.field("a storage's calls");
    in.check(
        s.born < static_cast<int32_t>(num_calls) && s.freed <= static_cast<int32_t>(num_calls) && s.born <= s.freed,
        cat("one was made by call ", s.born, " and freed before call ", s.freed, " of ", num_calls));
  }
  return r;
}

}  // namespace strata
