//! The one door to code that is not Rust: the face detector libfacedetection, a C++ shared library by the authors
//! of YuNet. Everything `unsafe` in this house is in this file, behind a safe type.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::frame::Size;

/// Bytes of the result buffer that the library's interface demands.
const RESULT_BYTES: usize = 0x9000;

/// The library's function, by its C++ name: `facedetect_cnn(unsigned char*, unsigned char*, int, int, int)`.
const DETECT_SYMBOL: &[u8] = b"_Z14facedetect_cnnPhS_iii\0";

/// Result buffer, BGR pixels, width, height, bytes a row; gives a pointer into the result buffer.
type DetectFn = unsafe extern "C" fn(*mut u8, *mut u8, c_int, c_int, c_int) -> *mut c_int;

/// The most faces that fit the result buffer: a count of 4 bytes, then 16 numbers of 2 bytes a face.
const MAX_FACES: usize = (RESULT_BYTES - 4) / (FIELDS_PER_FACE * 2);

/// Numbers a face.
const FIELDS_PER_FACE: usize = 16;

/// One call at a time in the whole process: the library fills static tables, and nothing says that it can do two.
static CALL_LOCK: Mutex<()> = Mutex::new(());

/// A face as the library tells it, in whole pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFace {
    /// 0 to 100.
    pub confidence: i16,
    /// Left, top, width, height.
    pub bounding_box: [i16; 4],
    /// x and y of image-left eye, image-right eye, nose tip, image-left and image-right mouth corner.
    pub landmarks: [[i16; 2]; 5],
}

/// Why the library cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// A library or a function in it is not there.
    #[error("cannot load {library}: {source}")]
    Load {
        /// Its path.
        library: String,
        /// The loader's words.
        source: libloading::Error,
    },
    /// The pixels given are not `width * height * 3` bytes, or a side is zero or too long.
    #[error("{bytes} bytes are not a {width} x {height} BGR picture")]
    InvalidPicture {
        /// Bytes given.
        bytes: usize,
        /// Width given.
        width: u32,
        /// Height given.
        height: u32,
    },
}

/// The detector, loaded.
pub struct FaceDetectCnn {
    detect_fn: DetectFn,
    result: Vec<u8>,
    // Kept for as long as `detect` is called; dropped after it, being declared later.
    _library: Library,
    _openmp: Library,
}

impl FaceDetectCnn {
    /// Loads the library and, first, the OpenMP runtime that it was linked with. Sets OpenMP to one thread: this
    /// house runs one detector a thread.
    ///
    /// # Errors
    /// `Load` when one of them cannot be loaded or lacks its function.
    pub fn open(library: &Path, openmp: &Path) -> Result<Self, LibraryError> {
        let openmp_library = load_library(openmp)?;
        let library_loaded = load_library(library)?;
        set_single_thread(&openmp_library, openmp)?;
        let detect = find_detect_fn(&library_loaded, library)?;
        Ok(Self {
            detect_fn: detect,
            result: vec![0; RESULT_BYTES],
            _library: library_loaded,
            _openmp: openmp_library,
        })
    }

    /// The faces in row-major BGR pixels. Waits for calls on other threads to end.
    ///
    /// # Errors
    /// `Picture` when the pixels do not fit the size.
    pub fn detect(&mut self, bgr: &mut [u8], size: Size) -> Result<Vec<RawFace>, LibraryError> {
        let fits = size.width > 0 && size.height > 0 && size.width.max(size.height) <= 1 << 14;
        if !fits || bgr.len() != size.area() * 3 {
            return Err(LibraryError::InvalidPicture {
                bytes: bgr.len(),
                width: size.width,
                height: size.height,
            });
        }
        self.result.fill(0);
        let alone = lock_calls();
        self.call_library(bgr, size);
        drop(alone);
        Ok(parse_faces(&self.result))
    }

    fn call_library(&mut self, bgr: &mut [u8], size: Size) {
        debug_assert!(bgr.len() == size.area() * 3 && self.result.len() == RESULT_BYTES);
        let (width, height) = (size.width as c_int, size.height as c_int);
        // SAFETY: `detect` has this signature (the library's header) and its library is held by `self`; the result
        // buffer has the length that the interface demands; the pixels are `height` rows of `width * 3` bytes, both
        // at most 2^14; no other call runs (`CALLS` is held). The pointer given back points into our own buffer.
        unsafe { (self.detect_fn)(self.result.as_mut_ptr(), bgr.as_mut_ptr(), width, height, width * 3) };
    }
}

fn lock_calls() -> MutexGuard<'static, ()> {
    // The lock guards no data of ours: a panic elsewhere leaves nothing half done.
    CALL_LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn load_library(path: &Path) -> Result<Library, LibraryError> {
    // SAFETY: loading runs the library's initialisers. The zoo has checked the file's sha256, so they are those of
    // the published OpenMP runtime and detector, which only set up their own state. Global, so that the detector
    // finds the runtime that was loaded before it.
    let loaded = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    loaded.map_err(|source| LibraryError::Load { library: path.display().to_string(), source })
}

fn find_detect_fn(library: &Library, path: &Path) -> Result<DetectFn, LibraryError> {
    // SAFETY: the mangled name says the parameter types (`Phs_iii`); the result type is that of the header. The
    // caller keeps the library for as long as the function.
    let symbol = unsafe { library.get::<DetectFn>(DETECT_SYMBOL) };
    symbol
        .map(|found| *found)
        .map_err(|source| LibraryError::Load { library: path.display().to_string(), source })
}

fn set_single_thread(openmp: &Library, path: &Path) -> Result<(), LibraryError> {
    let failed = |source| LibraryError::Load { library: path.display().to_string(), source };
    // SAFETY: `void omp_set_num_threads(int)` is the OpenMP standard's signature; the library is held by the caller.
    unsafe {
        let set = openmp.get::<unsafe extern "C" fn(c_int)>(b"omp_set_num_threads\0").map_err(failed)?;
        set(1);
    }
    Ok(())
}

/// An int32 count, then [`FIELDS`] int16 a face, of which the last is unused; in the machine's byte order.
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
