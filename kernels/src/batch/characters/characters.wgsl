// Greedy CTC decoding of strips of text: a workgroup a strip, an invocation a column. Class 0 is the blank.

const COLUMNS: u32 = 512u;
const THREADS: u32 = 64u;

struct Strips {
    columns: u32,
    classes: u32,
}

@group(0) @binding(0) var<storage, read> strips: Strips;
@group(0) @binding(1) var<storage, read> probabilities: array<f32>;
@group(0) @binding(2) var<storage, read_write> found: array<u32>;   // a strip: how many characters; class and bits of each

var<workgroup> class_of: array<u32, COLUMNS>;
var<workgroup> probability_of: array<f32, COLUMNS>;

@compute @workgroup_size(64, 1, 1)
fn characters(@builtin(local_invocation_id) local: vec3<u32>, @builtin(workgroup_id) group: vec3<u32>) {
    let first = group.x * strips.columns * strips.classes;
    for (var column = local.x; column < strips.columns; column += THREADS) {
        var class_best = 0u;
        var best = -3.4028234e38;
        for (var class_index = 0u; class_index < strips.classes; class_index++) {
            let value = probabilities[first + column * strips.classes + class_index];
            if value > best {
                best = value;
                class_best = class_index;
            }
        }
        class_of[column] = class_best;
        probability_of[column] = best;
    }
    workgroupBarrier();
    if local.x == 0u {
        let to = group.x * (strips.columns * 2u + 1u);
        var count = 0u;
        var last = 0u;
        for (var column = 0u; column < strips.columns; column++) {
            let class_here = class_of[column];
            if class_here != last && class_here != 0u {
                found[to + 1u + count * 2u] = class_here;
                found[to + 2u + count * 2u] = bitcast<u32>(probability_of[column]);
                count++;
            }
            last = class_here;
        }
        found[to] = count;
    }
}
