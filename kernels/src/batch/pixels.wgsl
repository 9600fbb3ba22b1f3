// Bytes of RGB pixels in words: WGSL has no 8-bit type. Photos are tightly packed, one after another, at offsets in
// bytes.

@group(0) @binding(0) var<storage, read> pixels: array<u32>;

fn byte_at(i: u32) -> u32 {
    return extractBits(pixels[i / 4u], (i % 4u) * 8u, 8u);
}

fn pixel_at(i: u32) -> vec3<f32> {
    return vec3<f32>(f32(byte_at(i)), f32(byte_at(i + 1u)), f32(byte_at(i + 2u)));
}
