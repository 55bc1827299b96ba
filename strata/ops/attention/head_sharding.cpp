#include "strata/ops/attention/head_sharding_inl.h"

namespace strata::detail {

void shard_heads(Sharding& s, const ShardRule& rule, HeadRoles args, HeadRoles results) {
  apply_rule(rule, s);
  const int64_t heads = *s.integer("heads"), kv_heads = *s.integer("kv_heads");
  const size_t packed = args.find('p');
  const int64_t width = s.args[packed].shape[2];
  const int64_t size = width / (heads + 2 * kv_heads);
  if (size == 0) return;
  Sharding::Possibility p = s.whole();
  p.evenly = true;
  const auto cut = [&](char role) {
    Placement c = Placement::sharded(role == 'l' ? 1 : 2);
    if (role == '_') return Placement();
    if (role != 'l') c.unit = size;
    if (role == 'p') c.segments = {heads * size, kv_heads * size, kv_heads * size};
    return c;
  };
  for (size_t i = 0; i < s.args.size(); ++i)
    if (s.args[i].defined) p.args[i] = cut(args[i]);
  for (size_t r = 0; r < s.results.size(); ++r) p.results[r] = cut(results[r]);
  const int arg = s.args[packed].arg;
  p.before = [arg, width](LocalCall& c) {
    const int64_t here = std::get<Tensor>(c.args[static_cast<size_t>(arg)]).size(2);
    for (const char* name : {"heads", "kv_heads"}) {
      Value& v = c.arg(name);
      v = Value(std::get<int64_t>(v) * here / width);
    }
  };
  p.repeats = true;
  s.add(std::move(p));
}

void shard_with_dropout(Sharding& s, const ShardRule& rule) {
  apply_rule(rule, s);
  if (s.number("dropout_p") == 0) return;
  for (Sharding::Possibility& p : s.possible) p.of_whole_size = true;
}

}  // namespace strata::detail
