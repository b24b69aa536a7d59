// Sharing, then first fit over lifetimes, device by device.
#include "csrc/plan/arena.h"

#include <algorithm>

#include "csrc/plan/place.h"

namespace ort {
namespace {

constexpr size_t kAlign = 64;

bool share(BufferAssignment& owned, int index, int i, int o) {
  const Step& step = owned.steps[static_cast<size_t>(index)];
  const int out = owned.operands[static_cast<size_t>(step.out + o)];
  if (!may_overwrite(step, owned.operands, owned.buffers, i, o)) return false;
  const int in = root(owned.buffers, owned.operands[static_cast<size_t>(step.in + i)]);
  Buffer& source = owned.buffers[static_cast<size_t>(in)];
  Buffer& target = owned.buffers[static_cast<size_t>(out)];
  const bool fits = source.kind == Slot::Kind::arena && target.kind == Slot::Kind::arena &&
                    source.device == target.device && source.last == index &&
                    target.first == index && target.merged_into < 0 &&
                    source.bytes == target.bytes && source.bytes > 0;
  if (!fits) return false;
  source.last = target.last;
  target.merged_into = in;
  return true;
}

// What has a place in one device's arena: buffers, then the scratch of steps.
struct Arena {
  std::vector<Lifetime> lives;
  std::vector<size_t> buffers, steps;
};

Arena arena_of(const BufferAssignment& owned, int device, int first) {
  Arena arena;
  for (size_t b = 0; b < owned.buffers.size(); ++b) {
    const Buffer& buffer = owned.buffers[b];
    if (buffer.kind != Slot::Kind::arena || buffer.merged_into >= 0 || buffer.last < 0 ||
        buffer.device != device || buffer.first < first)
      continue;
    arena.lives.push_back({std::max<size_t>(buffer.bytes, 1), buffer.first, buffer.last});
    arena.buffers.push_back(b);
  }
  for (size_t s = static_cast<size_t>(first); s < owned.steps.size(); ++s) {
    if (owned.steps[s].device != device) continue;
    const int at = static_cast<int>(s);
    arena.lives.push_back({owned.steps[s].kernel->scratch_bytes(), at, at});
    arena.steps.push_back(s);
  }
  return arena;
}

}  // namespace

void share_in_place(BufferAssignment& owned) {
  for (size_t index = 0; index < owned.steps.size(); ++index)
    for (int o = 0; o < owned.steps[index].n_out; ++o)
      for (int i = 0; i < owned.steps[index].n_in; ++i)
        if (share(owned, static_cast<int>(index), i, o)) break;
}

Placement fixed_slots(const BufferAssignment& owned, size_t devices) {
  Placement placement;
  for (const Buffer& buffer : owned.buffers)
    placement.slots.push_back({buffer.kind, buffer.at, buffer.device, buffer.layout});
  placement.scratch.resize(owned.steps.size());
  placement.bytes.resize(devices);
  return placement;
}

void place_arenas(const BufferAssignment& owned, size_t devices, int first, Slot::Kind kind,
                  Placement& placement, std::vector<Placed>& values) {
  placement.bytes.assign(devices, 0);
  for (size_t d = 0; d < devices; ++d) {
    const Arena arena = arena_of(owned, static_cast<int>(d), first);
    const std::vector<size_t> offsets = place(arena.lives, kAlign);
    placement.bytes[d] = (extent(arena.lives, offsets) + kAlign - 1) / kAlign * kAlign;
    for (size_t i = 0; i < arena.buffers.size(); ++i) {
      Slot& slot = placement.slots[arena.buffers[i]];
      slot.kind = kind;
      slot.at = offsets[i];
      const Lifetime& life = arena.lives[i];
      values.push_back({offsets[i], life.bytes, life.first, life.last, static_cast<int>(d)});
    }
    for (size_t i = 0; i < arena.steps.size(); ++i)
      placement.scratch[arena.steps[i]] = offsets[arena.buffers.size() + i];
  }
  for (size_t b = 0; b < owned.buffers.size(); ++b)
    if (const int of = root(owned.buffers, static_cast<int>(b)); of != static_cast<int>(b))
      placement.slots[b] = placement.slots[static_cast<size_t>(of)];
}

}  // namespace ort
