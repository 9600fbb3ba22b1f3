//! Safe binding to libfacedetection, a C++ face detector by the authors of YuNet, loaded as a shared library at run time.
//!
//! All `unsafe` code of the workspace is in this file, behind [`FaceDetectCnn`]. It knows pixels and the library's result
//! layout; scaling photos and score thresholds are the caller's, `photofinish_models::faces::libfacedetection`.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// Size of the result buffer, as the library's header requires.
const RESULT_BYTES: usize = 0x9000;

/// Mangled C++ name of `int* facedetect_cnn(unsigned char*, unsigned char*, int, int, int)`.
const DETECT_SYMBOL: &[u8] = b"_Z14facedetect_cnnPhS_iii\0";

/// Result buffer, BGR pixels, width, height, bytes per row. Returns a pointer into the result buffer.
type DetectFn = unsafe extern "C" fn(*mut u8, *mut u8, c_int, c_int, c_int) -> *mut c_int;

/// 16-bit numbers per face in the result buffer.
const FIELDS_PER_FACE: usize = 16;

/// Most faces that fit into the result buffer: a count of 4 bytes, then [`FIELDS_PER_FACE`] numbers of 2 bytes per face.
const MAX_FACES: usize = (RESULT_BYTES - 4) / (FIELDS_PER_FACE * 2);

/// Longest side of a picture in pixels: `width * height * 3` then fits a C `int`.
const MAX_SIDE: u32 = 1 << 14;

/// Allows one call at a time in the process: the library fills static tables and does not document thread safety.
static CALL_LOCK: Mutex<()> = Mutex::new(());

/// A face as the library returns it, in whole pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFace {
    /// 0 to 100.
    pub confidence: i16,
    /// Left, top, width, height.
    pub bounding_box: [i16; 4],
    /// x and y of image-left eye, image-right eye, nose tip, image-left and image-right mouth corner.
    pub landmarks: [[i16; 2]; 5],
}

/// Why the library could not be loaded or called.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// A library is missing or lacks a function.
    #[error("cannot load {library}: {source}")]
    Load {
        /// Path of the library.
        library: String,
        /// The loader's error.
        source: libloading::Error,
    },
    /// The pixels are not `width * height * 3` bytes, or a side is 0 or over 16,384.
    #[error("{bytes} bytes are not a {width} x {height} BGR picture")]
    InvalidPicture {
        /// Length of the pixel buffer.
        bytes: usize,
        /// Width passed.
        width: u32,
        /// Height passed.
        height: u32,
    },
}

/// The loaded detector with its result buffer.
pub struct FaceDetectCnn {
    detect_fn: DetectFn,
    result: Vec<u8>,
    // Fields drop in order: the libraries must outlive `detect_fn`.
    _library: Library,
    _openmp: Library,
}

impl FaceDetectCnn {
    /// Loads the library and, before it, the OpenMP runtime that it was linked with. Sets OpenMP to one thread, because
    /// the pipeline runs one detector per thread.
    ///
    /// # Errors
    /// `Load` when a library is missing or lacks its function.
    pub fn open(library: &Path, openmp: &Path) -> Result<Self, LibraryError> {
        let loaded_openmp = load_library(openmp)?;
        let loaded_library = load_library(library)?;
        set_single_thread(&loaded_openmp, openmp)?;
        let detect_fn = find_detect_fn(&loaded_library, library)?;
        Ok(Self {
            detect_fn,
            result: vec![0; RESULT_BYTES],
            _library: loaded_library,
            _openmp: loaded_openmp,
        })
    }

    /// Returns the faces in row-major BGR pixels, in the library's order. Waits for calls on other threads to end.
    ///
    /// # Errors
    /// `InvalidPicture` when the buffer does not have `width * height * 3` bytes, or a side is 0 or over 16,384.
    pub fn detect(&mut self, bgr: &mut [u8], width: u32, height: u32) -> Result<Vec<RawFace>, LibraryError> {
        let sides_fit = width > 0 && height > 0 && width.max(height) <= MAX_SIDE;
        if !sides_fit || bgr.len() != width as usize * height as usize * 3 {
            return Err(LibraryError::InvalidPicture { bytes: bgr.len(), width, height });
        }
        self.result.fill(0);
        // The lock protects no data, so a panic elsewhere cannot have left it inconsistent.
        let call_guard = CALL_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        self.call_library(bgr, width as c_int, height as c_int);
        drop(call_guard);
        Ok(parse_faces(&self.result))
    }

    fn call_library(&mut self, bgr: &mut [u8], width: c_int, height: c_int) {
        debug_assert!(bgr.len() == width as usize * height as usize * 3 && self.result.len() == RESULT_BYTES);
        // SAFETY: `detect_fn` has this signature (the library's header) and `self` keeps its library loaded; the result
        // buffer has the required length; the pixels are `height` rows of `width * 3` bytes, both sides at most
        // `MAX_SIDE`; `CALL_LOCK` is held, so no other call runs. The returned pointer points into our own buffer.
        unsafe { (self.detect_fn)(self.result.as_mut_ptr(), bgr.as_mut_ptr(), width, height, width * 3) };
    }
}

fn load_library(path: &Path) -> Result<Library, LibraryError> {
    // SAFETY: loading runs the library's initialisers. The zoo has checked the file's SHA-256, so they are those of the
    // published OpenMP runtime and detector, which set up only their own state. RTLD_GLOBAL lets the detector find the
    // OpenMP runtime loaded before it.
    let loaded = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    loaded.map_err(|source| load_error(path, source))
}

fn find_detect_fn(library: &Library, path: &Path) -> Result<DetectFn, LibraryError> {
    // SAFETY: the mangled name encodes the parameter types (`PhS_iii`); the result type is that of the header. The
    // caller keeps the library loaded as long as it keeps the function.
    let symbol = unsafe { library.get::<DetectFn>(DETECT_SYMBOL) };
    symbol.map(|found| *found).map_err(|source| load_error(path, source))
}

fn set_single_thread(openmp: &Library, path: &Path) -> Result<(), LibraryError> {
    // SAFETY: the OpenMP standard declares `void omp_set_num_threads(int)`; the caller keeps the library loaded.
    unsafe {
        let set_num_threads = openmp
            .get::<unsafe extern "C" fn(c_int)>(b"omp_set_num_threads\0")
            .map_err(|source| load_error(path, source))?;
        set_num_threads(1);
    }
    Ok(())
}

fn load_error(path: &Path, source: libloading::Error) -> LibraryError {
    LibraryError::Load { library: path.display().to_string(), source }
}

/// Parses an i32 count, then [`FIELDS_PER_FACE`] i16 per face, of which the last is unused; native byte order.
fn parse_faces(result: &[u8]) -> Vec<RawFace> {
    let Some((count, faces)) = result.split_first_chunk::<4>() else {
        return Vec::new();
    };
    let count = usize::try_from(i32::from_ne_bytes(*count)).unwrap_or(0).min(MAX_FACES);
    let (faces, _) = faces.as_chunks::<{ FIELDS_PER_FACE * 2 }>();
    faces.iter().take(count).map(parse_face).collect()
}

fn parse_face(bytes: &[u8; FIELDS_PER_FACE * 2]) -> RawFace {
    let field = |index: usize| i16::from_ne_bytes([bytes[index * 2], bytes[index * 2 + 1]]);
    RawFace {
        confidence: field(0),
        bounding_box: [field(1), field(2), field(3), field(4)],
        landmarks: std::array::from_fn(|point| [field(5 + point * 2), field(6 + point * 2)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_parsed_by_its_layout() {
        let mut result = vec![0; RESULT_BYTES];
        result[..4].copy_from_slice(&2_i32.to_ne_bytes());
        for (index, value) in (0..32_i16).enumerate() {
            result[4 + index * 2..6 + index * 2].copy_from_slice(&value.to_ne_bytes());
        }
        let faces = parse_faces(&result);
        assert_eq!(faces.len(), 2);
        assert_eq!(faces[1].confidence, 16);
        assert_eq!(faces[1].bounding_box, [17, 18, 19, 20]);
        assert_eq!(faces[1].landmarks, [[21, 22], [23, 24], [25, 26], [27, 28], [29, 30]]);
    }

    #[test]
    fn a_count_beyond_the_buffer_is_cut() {
        let mut result = vec![0; RESULT_BYTES];
        result[..4].copy_from_slice(&i32::MAX.to_ne_bytes());
        assert_eq!(parse_faces(&result).len(), MAX_FACES);
        result[..4].copy_from_slice(&(-1_i32).to_ne_bytes());
        assert!(parse_faces(&result).is_empty());
    }

    #[test]
    fn a_missing_shared_library_is_an_error_that_names_its_path() {
        let error =
            FaceDetectCnn::open(Path::new("/nowhere/a.so"), Path::new("/nowhere/b.so")).err().unwrap();
        assert!(error.to_string().contains("/nowhere/b.so"), "{error}");
    }
}
