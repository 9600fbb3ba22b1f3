// Which rows of a list may reach the least score of each of some probes: a bit a row and probe. A workgroup looks at
// THREADS rows and PROBES probes; an invocation has one row and multiplies each word that it reads with all of them.
//
// `rows` are as in the memory of the host: 16 words of which the first two are the list's number and its rows, then
// blocks of 16 rows, of which first come all first words, then all second ones, then for each block 16 scales and 16
// errors. Components are stored with 128 added.
//
// A bit that is set where the host would not have set it costs a second look; one that is missing would cost an
// answer. So margins are wider than the host's by more than products and sums can differ that are rounded in another
// way, and what is infinite or no number is decided by its bits: here arithmetic knows neither.

const THREADS: u32 = 256u;
const PROBES: u32 = 16u;

struct Search {
    probes: u32,
    words: u32,         // of a row
    first: u32,         // number of the first list of this search
    stride: u32,        // words of bits for a list and probe
}

@group(0) @binding(0) var<storage, read> search: Search;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read> probes: array<vec4<u32>>;     // a word of each of 16 probes, then the next
@group(0) @binding(3) var<storage, read> bounds: array<vec4<f32>>;     // scale, norm, margin, least score
@group(0) @binding(4) var<storage, read_write> bits: array<u32>;       // for each list, for each probe

// A word more after 32, so that those of 32 rows are read without waiting for each other.
var<workgroup> masks: array<u32, 264>;

fn is_no_number(value: u32) -> bool {
    return (value & 0x7f800000u) == 0x7f800000u;
}

@compute @workgroup_size(256, 1, 1)
fn near_rows(
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let row = group.x * THREADS + local.x;
    let count = rows[1];
    let list = rows[0] - search.first;
    var mask = 0u;
    if row < count {
        let at = 16u + row / 16u * search.words * 16u + row % 16u;
        var dots = array<vec4<i32>, 4>();
        for (var w = 0u; w < search.words; w++) {
            let word = rows[at + w * 16u] ^ 0x80808080u;
            let others = (group.y * search.words + w) * 4u;
            for (var q = 0u; q < 4u; q++) {
                let other = probes[others + q];
                dots[q] += vec4<i32>(
                    dot4I8Packed(word, other.x),
                    dot4I8Packed(word, other.y),
                    dot4I8Packed(word, other.z),
                    dot4I8Packed(word, other.w),
                );
            }
        }
        let factors = 16u + (count + 15u) / 16u * search.words * 16u + row / 16u * 32u + row % 16u;
        let scale = rows[factors];
        let error = rows[factors + 16u];
        if is_no_number(scale) || is_no_number(error) {
            mask = 0xffffu;
        } else {
            for (var p = 0u; p < PROBES; p++) {
                let bound = bounds[(list * groups.y + group.y) * PROBES + p];
                let score = f32(dots[p / 4u][p % 4u]) * (bound.x * bitcast<f32>(scale));
                let upper = score + (bound.y * bitcast<f32>(error) + bound.z);
                if upper >= bound.w {
                    mask |= 1u << p;
                }
            }
        }
    }
    masks[local.x + local.x / 32u] = mask;
    workgroupBarrier();
    if local.x < PROBES * 8u {
        let p = local.x / 8u;
        let word = local.x % 8u;
        let probe = group.y * PROBES + p;
        var gathered = 0u;
        for (var i = 0u; i < 32u; i++) {
            gathered |= ((masks[word * 33u + i] >> p) & 1u) << i;
        }
        if probe < search.probes {
            bits[(list * search.probes + probe) * search.stride + group.x * 8u + word] = gathered;
        }
    }
}
