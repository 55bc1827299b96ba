#include "strata/core/error.h"
#include "strata/io/zip_inl.h"

namespace strata::io {
namespace {

constexpr std::string_view kZip = "zip";
constexpr uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50, kListed = 0x02014b50,
                   kLocal = 0x04034b50;
constexpr uint64_t kEndBytes = 22, kLocatorBytes = 20, kListedBytes = 46, kLocalBytes = 30, kMaxComment = 65535;

struct Directory {
  uint64_t offset = 0, bytes = 0, entries = 0;
};

template <class T>
T number_at(std::string_view text, size_t at) {
  T value;
  std::memcpy(&value, text.data() + at, sizeof value);
  return value;
}

// The record that ends the archive, behind which only its comment stands.
uint64_t find_end(const Source& source) {
  const uint64_t n = std::min(source.size(), kEndBytes + kMaxComment), first = source.size() - n;
  const std::string tail = source.read(first, static_cast<size_t>(n));
  if (n >= kEndBytes)
    for (size_t at = static_cast<size_t>(n - kEndBytes) + 1; at-- > 0;)
      if (number_at<uint32_t>(tail, at) == kEnd && at + kEndBytes + number_at<uint16_t>(tail, at + 20) == n)
        return first + at;
  throw IoError(kZip, cat(quote(source.name()), ": has no list of its entries at its end (was the file cut off?)"));
}

Directory find_directory(const Source& source) {
  const uint64_t end = find_end(source);
  Cursor from(source, end, end + kEndBytes, kZip);
  from.number<uint32_t>("the end record");
  const auto disk = from.number<uint16_t>("the end record"), first_disk = from.number<uint16_t>("the end record");
  const auto here = from.number<uint16_t>("the end record"), entries = from.number<uint16_t>("the end record");
  const auto bytes = from.number<uint32_t>("the end record"), offset = from.number<uint32_t>("the end record");
  Directory d{offset, bytes, entries};
  uint64_t limit = end;
  bool one_volume = (disk == 0 || disk == 0xffff) && (first_disk == 0 || first_disk == 0xffff) && here == entries;
  Cursor locator(source, end < kLocatorBytes ? end : end - kLocatorBytes, end, kZip);
  if (locator.left() == kLocatorBytes && locator.number<uint32_t>("the zip64 locator") == kLocator64) {
    locator.number<uint32_t>("the zip64 locator");
    const auto place = locator.number<uint64_t>("the zip64 locator");
    if (place > end - kLocatorBytes) locator.fail(end - kLocatorBytes, "the zip64 locator leads to byte ", place);
    Cursor wide(source, place, end - kLocatorBytes, kZip);
    const std::string what = "the zip64 end record";
    if (wide.number<uint32_t>(what) != kEnd64) wide.fail(place, "the zip64 end record is not there");
    wide.text(12, what);  // its length, and versions
    const auto disk64 = wide.number<uint32_t>(what), first_disk64 = wide.number<uint32_t>(what);
    const auto here64 = wide.number<uint64_t>(what), entries64 = wide.number<uint64_t>(what),
               bytes64 = wide.number<uint64_t>(what), offset64 = wide.number<uint64_t>(what);
    one_volume = one_volume && disk64 == 0 && first_disk64 == 0 && here64 == entries64;
    if ((entries != 0xffff && entries != entries64) || (bytes != 0xffffffff && bytes != bytes64) ||
        (offset != 0xffffffff && offset != offset64))
      wide.fail(place, "the zip64 end record and the one of 32 bits disagree");
    d = {offset64, bytes64, entries64};
    limit = place;
  }
  if (!one_volume) from.fail(end, "is one of several volumes");
  if (d.bytes > limit || d.offset > limit - d.bytes)
    from.fail(end, "the list of entries, ", d.bytes, " bytes from ", d.offset, ", is not in the file before byte ",
              limit);
  if (d.bytes > kMaxZipDirectory)
    from.fail(end, "the list of entries has ", d.bytes, " bytes, at most ", kMaxZipDirectory, " are allowed");
  if (d.entries > d.bytes / kListedBytes) from.fail(end, d.entries, " entries are more than ", d.bytes, " bytes list");
  return d;
}

// The numbers of 64 bits that an entry's extra fields have in place of those that are all ones.
void widen(const Cursor& from, uint64_t at, std::string_view extra, ZipFile::Entry& e) {
  uint64_t* wanted[] = {&e.size, &e.packed, &e.header};
  bool have = false;
  while (extra.size() >= 4) {
    const auto id = number_at<uint16_t>(extra, 0), n = number_at<uint16_t>(extra, 2);
    extra.remove_prefix(4);
    if (n > extra.size()) from.fail(at, "an entry's extra field is longer than its fields");
    std::string_view field = extra.substr(0, n);
    extra.remove_prefix(n);
    if (id != 1 || have) continue;
    have = true;
    for (uint64_t* value : wanted) {
      if (*value != 0xffffffff || field.size() < 8) continue;
      *value = number_at<uint64_t>(field, 0);
      field.remove_prefix(8);
    }
  }
}

}  // namespace

ZipFile::ZipFile(const Source& source) : source_(source) {
  const Directory d = find_directory(source);
  directory_ = d.offset;
  Cursor from(source, d.offset, d.offset + d.bytes, kZip);
  for (uint64_t i = 0; i < d.entries; ++i) {
    const uint64_t at = from.at();
    const std::string record = from.text(kListedBytes, "an entry's record");
    if (number_at<uint32_t>(record, 0) != kListed) from.fail(at, "an entry's record is wanted");
    Entry e;
    e.flags = number_at<uint16_t>(record, 8);
    e.method = number_at<uint16_t>(record, 10);
    e.packed = number_at<uint32_t>(record, 20);
    e.size = number_at<uint32_t>(record, 24);
    e.header = number_at<uint32_t>(record, 42);
    std::string name = from.text(number_at<uint16_t>(record, 28), "an entry's name");
    widen(from, at, from.text(number_at<uint16_t>(record, 30), "an entry's extra field"), e);
    from.text(number_at<uint16_t>(record, 32), "an entry's comment");
    if (e.header > directory_) from.fail(at, "entry ", quote(name), " is said to be at byte ", e.header);
    const std::string what = quote(name);
    if (!entries_.emplace(std::move(name), e).second) from.fail(at, "entry ", what, " is given twice");
  }
}

ZipFile::Place ZipFile::place(std::string_view name) const {
  const auto found = entries_.find(name);
  check<IoError>(found != entries_.end(), kZip, quote(source_.name()), ": has no entry ", quote(name));
  const Entry& e = found->second;
  Cursor from(source_, e.header, directory_, kZip);
  if (e.method != 0) from.fail(e.header, "entry ", quote(name), " is compressed, a stored one is wanted");
  if ((e.flags & 0x2041) != 0) from.fail(e.header, "entry ", quote(name), " is encrypted");
  const std::string record = from.text(kLocalBytes, "an entry's header");
  if (number_at<uint32_t>(record, 0) != kLocal || number_at<uint16_t>(record, 8) != 0)
    from.fail(e.header, "the header of entry ", quote(name), " is wanted");
  const auto name_bytes = number_at<uint16_t>(record, 26), extra_bytes = number_at<uint16_t>(record, 28);
  if (from.text(name_bytes, "an entry's name") != name)
    from.fail(e.header, "the header of entry ", quote(name), " has another name");
  from.need(uint64_t{extra_bytes}, "an entry's extra field");
  const uint64_t offset = from.at() + extra_bytes;
  if (e.packed != e.size || e.size > directory_ - offset)
    from.fail(e.header, "entry ", quote(name), ": ", e.size, " bytes from ", offset,
              " are not in the file before its list");
  return {offset, e.size};
}

std::string ZipFile::read(std::string_view name, uint64_t limit) const {
  const Place p = place(name);
  check<IoError>(p.size <= limit, kZip, quote(source_.name()), ": entry ", quote(name), " has ", p.size,
                 " bytes, at most ", limit, " are allowed");
  return source_.read(p.offset, static_cast<size_t>(p.size));
}

}  // namespace strata::io
