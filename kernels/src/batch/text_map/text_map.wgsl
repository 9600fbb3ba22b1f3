// DBNet's probability maps. `text_bits`: one invocation makes 32 pixels of the binary map, dilated by one pixel to the
// right and down, and finds the highest probability in a range of columns. `text_scores`: a workgroup a box, the mean
// probability in its rows.

struct Map {
    values: u32,       // index of the first value
    width: u32,
    height: u32,
    bits: u32,         // index of the first word
    first: u32,        // columns of the highest probability
    last: u32,
    threshold: f32,
    unused: u32,
}

@group(0) @binding(0) var<storage, read> values: array<f32>;
@group(0) @binding(1) var<storage, read> maps: array<Map>;
@group(0) @binding(2) var<storage, read_write> bits: array<u32>;
@group(0) @binding(3) var<storage, read_write> highest: array<atomic<u32>>;

@compute @workgroup_size(32, 4, 1)
fn text_bits(@builtin(global_invocation_id) id: vec3<u32>) {
    let m = maps[id.z];
    let words = (m.width + 31u) / 32u;
    if id.x >= words || id.y >= m.height {
        return;
    }
    var word = 0u;
    var high = 0.0;
    let row = m.values + id.y * m.width;
    for (var i = 0u; i < 32u; i++) {
        let x = id.x * 32u + i;
        if x < m.width {
            let value = values[row + x];
            if x >= m.first && x < m.last {
                high = max(high, value);
            }
            var is_text = value > m.threshold;
            if x > 0u {
                is_text = is_text || values[row + x - 1u] > m.threshold;
            }
            if id.y > 0u {
                is_text = is_text || values[row + x - m.width] > m.threshold;
                if x > 0u {
                    is_text = is_text || values[row + x - m.width - 1u] > m.threshold;
                }
            }
            if is_text {
                word |= 1u << i;
            }
        }
    }
    bits[m.bits + id.y * words + id.x] = word;
    // Numbers that are not negative have the order of their bits.
    atomicMax(&highest[id.z], bitcast<u32>(high));
}

// A row of a box: its first value and how many there are. A box: its first row and how many there are.
@group(0) @binding(1) var<storage, read> rows: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> boxes: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> sums: array<f32>;

var<workgroup> partial: array<f32, 64>;

@compute @workgroup_size(64, 1, 1)
fn text_scores(@builtin(local_invocation_id) local: vec3<u32>, @builtin(workgroup_id) group: vec3<u32>) {
    let box = boxes[group.x];
    var sum = 0.0;
    for (var i = local.x; i < box.y; i += 64u) {
        let row = rows[box.x + i];
        for (var j = 0u; j < row.y; j++) {
            sum += values[row.x + j];
        }
    }
    partial[local.x] = sum;
    workgroupBarrier();
    for (var half = 32u; half > 0u; half /= 2u) {
        if local.x < half {
            partial[local.x] += partial[local.x + half];
        }
        workgroupBarrier();
    }
    if local.x == 0u {
        sums[group.x] = partial[0];
    }
}
