// The k rows of an album most similar to each of some probes. A workgroup looks at CHUNK rows and PROBES probes and
// gives the k best of its rows for each; the host merges the lists. Equal scores go by index, so that every device
// answers the same.
//
// Rows are in blocks of 32: the first word of each of them, then the second. So neighbouring invocations read
// neighbouring words.

const CHUNK: u32 = 1024u;
const THREADS: u32 = 256u;
const PROBES: u32 = 4u;
const NONE: f32 = -3.0e38;

struct Search {
    rows: u32,
    words: u32,         // of a vector
    k: u32,             // at most CHUNK
    probes: u32,
}

@group(0) @binding(0) var<storage, read> search: Search;
@group(0) @binding(1) var<storage, read> album: array<u32>;
@group(0) @binding(2) var<storage, read> factors: array<f32>;
@group(0) @binding(3) var<storage, read> probes: array<u32>;
@group(0) @binding(4) var<storage, read> probe_factors: array<f32>;
@group(0) @binding(5) var<storage, read_write> found: array<vec2<u32>>;   // row, bits of the score; a list a probe and chunk

var<workgroup> scores: array<f32, 4096>;
var<workgroup> best: array<f32, THREADS>;
var<workgroup> best_at: array<u32, THREADS>;

fn select_best(local: u32, group: vec3<u32>, chunks: u32) {
    for (var p = 0u; p < PROBES; p++) {
        let probe = group.y * PROBES + p;
        let scores_of = p * CHUNK;
        for (var n = 0u; n < search.k; n++) {
            var top = NONE;
            var at = local;
            for (var i = local; i < CHUNK; i += THREADS) {
                if scores[scores_of + i] > top {
                    top = scores[scores_of + i];
                    at = i;
                }
            }
            best[local] = top;
            best_at[local] = at;
            workgroupBarrier();
            for (var half = THREADS / 2u; half > 0u; half /= 2u) {
                if local < half {
                    let o = local + half;
                    if best[o] > best[local] || (best[o] == best[local] && best_at[o] < best_at[local]) {
                        best[local] = best[o];
                        best_at[local] = best_at[o];
                    }
                }
                workgroupBarrier();
            }
            if local == 0u {
                if probe < search.probes {
                    let to = (probe * chunks + group.x) * search.k + n;
                    found[to] = vec2<u32>(group.x * CHUNK + best_at[0], bitcast<u32>(best[0]));
                }
                scores[scores_of + best_at[0]] = NONE;
            }
            workgroupBarrier();
        }
    }
}

@compute @workgroup_size(256, 1, 1)
fn top_k_i8(
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    for (var i = local.x; i < CHUNK; i += THREADS) {
        let row = group.x * CHUNK + i;
        var dots = vec4<i32>(0);
        if row < search.rows {
            let at = (row / 32u) * search.words * 32u + row % 32u;
            let first = group.y * PROBES * search.words;
            for (var w = 0u; w < search.words; w++) {
                let word = album[at + w * 32u];
                for (var p = 0u; p < PROBES; p++) {
                    dots[p] += dot4I8Packed(word, probes[first + p * search.words + w]);
                }
            }
        }
        for (var p = 0u; p < PROBES; p++) {
            var score = NONE;
            if row < search.rows {
                score = f32(dots[p]) * (factors[row] * probe_factors[group.y * PROBES + p]);
            }
            scores[p * CHUNK + i] = score;
        }
    }
    workgroupBarrier();
    select_best(local.x, group, groups.x);
}

// Two components a word; products and sums in f32, one after another.
@compute @workgroup_size(256, 1, 1)
fn top_k_f16(
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    for (var i = local.x; i < CHUNK; i += THREADS) {
        let row = group.x * CHUNK + i;
        var dots = vec4<f32>(0.0);
        if row < search.rows {
            let at = (row / 32u) * search.words * 32u + row % 32u;
            let first = group.y * PROBES * search.words;
            for (var w = 0u; w < search.words; w++) {
                let pair = unpack2x16float(album[at + w * 32u]);
                for (var p = 0u; p < PROBES; p++) {
                    let other = unpack2x16float(probes[first + p * search.words + w]);
                    dots[p] += pair.x * other.x;
                    dots[p] += pair.y * other.y;
                }
            }
        }
        for (var p = 0u; p < PROBES; p++) {
            var score = NONE;
            if row < search.rows {
                score = dots[p] * (factors[row] * probe_factors[group.y * PROBES + p]);
            }
            scores[p * CHUNK + i] = score;
        }
    }
    workgroupBarrier();
    select_best(local.x, group, groups.x);
}
