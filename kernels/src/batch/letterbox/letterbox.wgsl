// Resizes windows of photos into rows of NCHW canvases. One invocation makes one pixel of all three planes; z is the
// block. After pixels.wgsl.

const COPY: u32 = 0u;
const BILINEAR: u32 = 1u;

struct Block {
    offset: u32,        // of the window's first pixel, bytes; modulo 2^32, since a part of a photo may begin below it
    stride: u32,        // bytes of a row of the photo
    filter_kind: u32,   // COPY, BILINEAR or area
    columns: u32,       // the first cell of a column and of a row
    rows: u32,
    width: u32,         // what is photo, at the top left of the block
    height: u32,
    out: u32,           // index of the first number
    lines: u32,         // rows of the block
    skipped: u32,       // rows of the window above, for COPY
    unused0: u32,
    unused1: u32,
}

// Bilinear: the two pixels, and the distance from the first. Area: the first pixel, the first weight, how many.
struct Cell {
    first: u32,
    second: u32,
    third: u32,
}

struct Canvas {
    width: u32,
    blocks: u32,
    padding: f32,
    is_bgr: u32,
    mean: vec4<f32>,
    scale: vec4<f32>,
}

@group(0) @binding(1) var<storage, read> blocks: array<Block>;
@group(0) @binding(2) var<storage, read> cells: array<Cell>;
@group(0) @binding(3) var<storage, read> weights: array<f32>;
@group(0) @binding(4) var<storage, read> canvas: Canvas;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

fn bilinear(b: Block, column: Cell, row: Cell) -> vec3<f32> {
    let low = b.offset + row.first * b.stride;
    let high = b.offset + row.second * b.stride;
    let fx = bitcast<f32>(column.third);
    let fy = bitcast<f32>(row.third);
    let upper_start = pixel_at(low + column.first * 3u);
    let upper = upper_start + (pixel_at(low + column.second * 3u) - upper_start) * fx;
    let lower_start = pixel_at(high + column.first * 3u);
    let lower = lower_start + (pixel_at(high + column.second * 3u) - lower_start) * fx;
    return upper + (lower - upper) * fy + 0.5;
}

// Sums down each column of source pixels first, then across, as the processor does.
fn area(b: Block, column: Cell, row: Cell) -> vec3<f32> {
    var total = vec3<f32>(0.5);
    for (var i = 0u; i < column.third; i++) {
        let at = b.offset + row.first * b.stride + (column.first + i) * 3u;
        var sum = pixel_at(at) * weights[row.second];
        for (var j = 1u; j < row.third; j++) {
            sum += pixel_at(at + j * b.stride) * weights[row.second + j];
        }
        total += sum * weights[column.second + i];
    }
    return total;
}

@compute @workgroup_size(32, 8, 1)
fn letterbox(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.z >= canvas.blocks || id.x >= canvas.width {
        return;
    }
    let b = blocks[id.z];
    if id.y >= b.lines {
        return;
    }
    var value = vec3<f32>(canvas.padding);
    if id.x < b.width && id.y < b.height {
        var rgb: vec3<f32>;
        if b.filter_kind == COPY {
            rgb = pixel_at(b.offset + (id.y + b.skipped) * b.stride + id.x * 3u);
        } else if b.filter_kind == BILINEAR {
            rgb = floor(bilinear(b, cells[b.columns + id.x], cells[b.rows + id.y]));
        } else {
            rgb = floor(area(b, cells[b.columns + id.x], cells[b.rows + id.y]));
        }
        if canvas.is_bgr == 1u {
            rgb = rgb.zyx;
        }
        value = (rgb - canvas.mean.xyz) * canvas.scale.xyz;
    }
    let plane = canvas.width * b.lines;
    let at = b.out + id.y * canvas.width + id.x;
    out[at] = value.x;
    out[at + plane] = value.y;
    out[at + 2u * plane] = value.z;
}
