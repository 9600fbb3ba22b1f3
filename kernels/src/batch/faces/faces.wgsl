// YuNet's outputs to faces. `faces_decode` runs once for each stride, one invocation for each cell of each photo, and
// appends the cells that score enough to the photo's candidates, in any order. `faces_suppress` runs once, a workgroup
// a photo: it ranks the candidates and drops those that overlap a better one.

const CAPACITY: u32 = 1024u;   // candidates of a photo
const RECORD: u32 = 16u;       // numbers of a candidate: rectangle, landmarks, score, bits of its cell's place
const THREADS: u32 = 256u;

struct Level {
    stride: f32,
    columns: u32,
    cells: u32,        // of a photo
    photos: u32,
    min_score: f32,
    max_iou: f32,
    first_cell: u32,   // cells of the levels before
    unused: u32,
}

@group(0) @binding(0) var<storage, read> level: Level;
@group(0) @binding(1) var<storage, read> scales: array<vec2<f32>>;   // pixels of the photo a pixel of the input
@group(0) @binding(2) var<storage, read_write> candidates: array<f32>;
@group(0) @binding(3) var<storage, read_write> counts: array<atomic<u32>>;
@group(0) @binding(4) var<storage, read> classes: array<f32>;
@group(0) @binding(5) var<storage, read> objects: array<f32>;
@group(0) @binding(6) var<storage, read> boxes: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read> points: array<f32>;

@compute @workgroup_size(256, 1, 1)
fn faces_decode(@builtin(global_invocation_id) id: vec3<u32>) {
    let photo = id.y;
    let cell = id.x;
    if cell >= level.cells || photo >= level.photos {
        return;
    }
    let i = photo * level.cells + cell;
    let score = sqrt(clamp(classes[i], 0.0, 1.0) * clamp(objects[i], 0.0, 1.0));
    if !(score >= level.min_score) {
        return;
    }
    let slot = atomicAdd(&counts[photo], 1u);
    if slot >= CAPACITY {
        return;
    }
    let at = (photo * CAPACITY + slot) * RECORD;
    let place = vec2<f32>(f32(cell % level.columns), f32(cell / level.columns));
    let box = boxes[i];
    let half = vec2<f32>(exp(box.z) / 2.0, exp(box.w) / 2.0);
    let middle = place + box.xy;
    let low = (middle - half) * level.stride * scales[photo];
    let high = (middle + half) * level.stride * scales[photo];
    candidates[at] = low.x;
    candidates[at + 1u] = low.y;
    candidates[at + 2u] = high.x;
    candidates[at + 3u] = high.y;
    for (var p = 0u; p < 5u; p++) {
        let offset = vec2<f32>(points[i * 10u + p * 2u], points[i * 10u + p * 2u + 1u]);
        let point = (place + offset) * level.stride * scales[photo];
        candidates[at + 4u + p * 2u] = point.x;
        candidates[at + 5u + p * 2u] = point.y;
    }
    candidates[at + 14u] = score;
    candidates[at + 15u] = f32(level.first_cell + cell);
}

@group(0) @binding(4) var<storage, read_write> kept: array<u32>;   // a photo: how many candidates, how many kept, which

var<workgroup> order: array<u32, CAPACITY>;
var<workgroup> dropped: array<u32, CAPACITY>;
var<workgroup> number: u32;

fn is_better(a: u32, b: u32) -> bool {
    let score_a = candidates[a * RECORD + 14u];
    let score_b = candidates[b * RECORD + 14u];
    return score_a > score_b || (score_a == score_b && candidates[a * RECORD + 15u] < candidates[b * RECORD + 15u]);
}

fn area(left: f32, top: f32, right: f32, bottom: f32) -> f32 {
    return max(right - left, 0.0) * max(bottom - top, 0.0);
}

fn iou(a: u32, b: u32) -> f32 {
    let i = a * RECORD;
    let j = b * RECORD;
    let overlap = area(
        max(candidates[i], candidates[j]), max(candidates[i + 1u], candidates[j + 1u]),
        min(candidates[i + 2u], candidates[j + 2u]), min(candidates[i + 3u], candidates[j + 3u]),
    );
    let area_a = area(candidates[i], candidates[i + 1u], candidates[i + 2u], candidates[i + 3u]);
    let area_b = area(candidates[j], candidates[j + 1u], candidates[j + 2u], candidates[j + 3u]);
    let union_area = area_a + area_b - overlap;
    if union_area > 0.0 {
        return overlap / union_area;
    }
    return 0.0;
}

@compute @workgroup_size(256, 1, 1)
fn faces_suppress(@builtin(local_invocation_id) local: vec3<u32>, @builtin(workgroup_id) group: vec3<u32>) {
    let photo = group.x;
    let base = photo * CAPACITY;
    if local.x == 0u {
        number = atomicLoad(&counts[photo]);
    }
    let found = workgroupUniformLoad(&number);
    let count = min(found, CAPACITY);
    for (var i = local.x; i < count; i += THREADS) {
        var rank = 0u;
        for (var j = 0u; j < count; j++) {
            if is_better(base + j, base + i) {
                rank++;
            }
        }
        order[rank] = base + i;
        dropped[i] = 0u;
    }
    workgroupBarrier();
    for (var i = 0u; i < count; i++) {
        if dropped[i] == 0u {
            for (var j = i + 1u + local.x; j < count; j += THREADS) {
                if dropped[j] == 0u && !(iou(order[i], order[j]) <= level.max_iou) {
                    dropped[j] = 1u;
                }
            }
        }
        workgroupBarrier();
    }
    if local.x == 0u {
        let to = photo * (CAPACITY + 2u);
        var n = 0u;
        for (var i = 0u; i < count; i++) {
            if dropped[i] == 0u {
                kept[to + 2u + n] = order[i] - base;
                n++;
            }
        }
        kept[to] = found;
        kept[to + 1u] = n;
    }
}
