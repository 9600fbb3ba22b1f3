// Resizes photos by two passes of integer weights, down the columns and then along the rows, each rounded to 8 bits.
// One invocation makes four bytes of a row; z is the block. After pixels.wgsl.

struct Block {
    offset: u32,          // of the photo's first pixel, bytes, modulo 2^32
    stride: u32,          // bytes of a row of the photo
    rows: u32,            // the first cell of a row and of a column
    columns: u32,
    row_shift: u32,       // fraction bits of the weights
    column_shift: u32,
    between: u32,         // first word between the passes, and words of a row there
    between_stride: u32,
    out: u32,             // first word of the result, and words of a row
    out_stride: u32,
    lines: u32,           // rows of the block
    unused: u32,
}

struct Cell {
    first: u32,
    weight: u32,
    count: u32,
}

@group(0) @binding(1) var<storage, read> blocks: array<Block>;
@group(0) @binding(2) var<storage, read> cells: array<Cell>;
@group(0) @binding(3) var<storage, read> weights: array<i32>;
@group(0) @binding(4) var<storage, read_write> between: array<u32>;
@group(0) @binding(5) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(64, 1, 1)
fn downscale_rows(@builtin(global_invocation_id) id: vec3<u32>) {
    let b = blocks[id.z];
    if id.x >= b.between_stride || id.y >= b.lines {
        return;
    }
    let cell = cells[b.rows + id.y];
    var word = 0u;
    for (var i = 0u; i < 4u; i++) {
        let column = id.x * 4u + i;
        if column < b.stride {
            var sum = 1 << (b.row_shift - 1u);
            for (var j = 0u; j < cell.count; j++) {
                sum += i32(byte_at(b.offset + (cell.first + j) * b.stride + column)) * weights[cell.weight + j];
            }
            word |= u32(clamp(sum >> b.row_shift, 0, 255)) << (i * 8u);
        }
    }
    between[b.between + id.y * b.between_stride + id.x] = word;
}

@compute @workgroup_size(64, 1, 1)
fn downscale_columns(@builtin(global_invocation_id) id: vec3<u32>) {
    let b = blocks[id.z];
    if id.x >= b.out_stride || id.y >= b.lines {
        return;
    }
    let line = b.between + id.y * b.between_stride;
    var word = 0u;
    for (var i = 0u; i < 4u; i++) {
        let at = id.x * 4u + i;
        // The last cell serves the bytes after the last pixel too; nobody reads those.
        let cell = cells[b.columns + at / 3u];
        var sum = 1 << (b.column_shift - 1u);
        for (var j = 0u; j < cell.count; j++) {
            let byte = (cell.first + j) * 3u + at % 3u;
            sum += i32(extractBits(between[line + byte / 4u], (byte % 4u) * 8u, 8u)) * weights[cell.weight + j];
        }
        word |= u32(clamp(sum >> b.column_shift, 0, 255)) << (i * 8u);
    }
    out[b.out + id.y * b.out_stride + id.x] = word;
}
