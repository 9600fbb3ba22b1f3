// Samples photos through homographies into NCHW canvases: aligned faces, rectified texts. One invocation makes one
// pixel of all three planes; z is the item. After pixels.wgsl.

struct Item {
    offset: u32,         // of the photo's first pixel, bytes, modulo 2^32
    width: u32,          // of the photo
    height: u32,
    is_nearest: u32,     // outside the photo: its nearest pixel, else black
    oversampling: u32,   // samples of a pixel along each side
    columns: u32,        // what is photo, at the left of the canvas
    out: u32,            // index of the first number
    is_blank: u32,       // all black
    x: vec3<f32>,
    wx: f32,
    y: vec3<f32>,
    wy: f32,
}

struct Canvas {
    width: u32,
    height: u32,
    padding: f32,
    is_bgr: u32,
    mean: vec4<f32>,
    scale: vec4<f32>,
}

@group(0) @binding(1) var<storage, read> items: array<Item>;
@group(0) @binding(2) var<storage, read> canvas: Canvas;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

fn pixel_or_border(t: Item, x: i32, y: i32) -> vec3<f32> {
    let inside_x = clamp(x, 0, i32(t.width) - 1);
    let inside_y = clamp(y, 0, i32(t.height) - 1);
    if t.is_nearest == 0u && (inside_x != x || inside_y != y) {
        return vec3<f32>(0.0);
    }
    return pixel_at(t.offset + (u32(inside_y) * t.width + u32(inside_x)) * 3u);
}

// The pixel at a column and a row of the canvas times the oversampling, 0 to 255.
fn sample(t: Item, column: u32, row: u32) -> vec3<f32> {
    let u = f32(column);
    let v = f32(row);
    var sx = t.x.x * u + (t.x.y * v + t.x.z);
    var sy = t.y.x * u + (t.y.y * v + t.y.z);
    if t.wx != 0.0 || t.wy != 0.0 {
        let w = t.wx * u + (t.wy * v + 1.0);
        sx = sx / w;
        sy = sy / w;
    }
    sx = clamp(sx, -2.0, f32(t.width) + 1.0);
    sy = clamp(sy, -2.0, f32(t.height) + 1.0);
    let fx = sx - floor(sx);
    let fy = sy - floor(sy);
    let left = i32(floor(sx));
    let top = i32(floor(sy));
    let top_left = pixel_or_border(t, left, top);
    let bottom_left = pixel_or_border(t, left, top + 1);
    let upper = top_left + (pixel_or_border(t, left + 1, top) - top_left) * fx;
    let lower = bottom_left + (pixel_or_border(t, left + 1, top + 1) - bottom_left) * fx;
    return floor(upper + (lower - upper) * fy + 0.5);
}

@compute @workgroup_size(32, 8, 1)
fn warp(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= canvas.width || id.y >= canvas.height {
        return;
    }
    let t = items[id.z];
    var value = vec3<f32>(canvas.padding);
    if id.x < t.columns {
        var rgb = vec3<f32>(0.0);
        if t.is_blank == 0u {
            if t.oversampling == 1u {
                rgb = sample(t, id.x, id.y);
            } else {
                let weight = 1.0 / f32(t.oversampling);
                var total = vec3<f32>(0.5);
                for (var i = 0u; i < t.oversampling; i++) {
                    var sum = vec3<f32>(0.0);
                    for (var j = 0u; j < t.oversampling; j++) {
                        sum += sample(t, id.x * t.oversampling + i, id.y * t.oversampling + j) * weight;
                    }
                    total += sum * weight;
                }
                rgb = floor(total);
            }
        }
        if canvas.is_bgr == 1u {
            rgb = rgb.zyx;
        }
        value = (rgb - canvas.mean.xyz) * canvas.scale.xyz;
    }
    let plane = canvas.width * canvas.height;
    let at = t.out + id.y * canvas.width + id.x;
    out[at] = value.x;
    out[at + plane] = value.y;
    out[at + 2u * plane] = value.z;
}
