//! Everything that the model assumes, in one place: rates of devices, work of networks, cost of decoding. A run on a GPU
//! replaces these numbers one by one. `docs/PERFORMANCE.md` says where each is from.

use std::time::Duration;

/// Cores that feed the device.
pub const CORES: usize = 16;

/// Faces of a photo, each with one torso that is looked at.
pub const FACES: usize = 3;

/// Of a device's arithmetic in f32, what small convolutions reach: 64 faces without TF32 on an H200.
pub const COMPUTE_EFFICIENCY: f64 = 0.14;

/// Of a device's memory bandwidth, what they reach.
pub const MEMORY_EFFICIENCY: f64 = 0.60;

/// Bytes per second, 1e9, of copies between a device and memory of the host that is not pinned.
pub const UNPINNED_GIGABYTES: f64 = 7.0;

/// A device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceModel {
    /// Name.
    pub name: &'static str,
    /// f32 operations per second without TF32, 1e12.
    pub tera_operations: f64,
    /// Bytes per second of its memory, 1e12.
    pub memory_terabytes: f64,
    /// Bytes per second over PCIe in one direction, to and from pinned memory, 1e9.
    pub pcie_gigabytes: f64,
    /// Pixels per second that nvJPEG decodes, 1e9.
    pub decoder_gigapixels: f64,
    /// Whether it decodes with an engine of its own, beside the arithmetic.
    pub has_decoder_engine: bool,
}

/// The devices.
pub const DEVICES: [DeviceModel; 4] = [
    DeviceModel {
        name: "H100 SXM",
        tera_operations: 67.0,
        memory_terabytes: 3.35,
        pcie_gigabytes: 50.0,
        decoder_gigapixels: 8.3,
        has_decoder_engine: true,
    },
    DeviceModel {
        name: "H200",
        tera_operations: 67.0,
        memory_terabytes: 4.8,
        pcie_gigabytes: 50.0,
        decoder_gigapixels: 8.3,
        has_decoder_engine: true,
    },
    DeviceModel {
        name: "L4",
        tera_operations: 30.3,
        memory_terabytes: 0.3,
        pcie_gigabytes: 22.0,
        decoder_gigapixels: 4.0,
        has_decoder_engine: true,
    },
    DeviceModel {
        name: "T4",
        tera_operations: 8.1,
        memory_terabytes: 0.32,
        pcie_gigabytes: 11.0,
        decoder_gigapixels: 0.7,
        has_decoder_engine: false,
    },
];

/// A network at the size at which it is used.
#[derive(Clone, Copy, Debug)]
pub struct NetworkModel {
    /// Operations for one item, 1e9: two for each product with its sum.
    pub giga_operations: f64,
    /// Bytes of one item that the device's memory reads and writes, 1e6: as many as fit the time of a full batch.
    pub traffic_megabytes: f64,
    /// Time of a call with one item, without its copies: the launches of its layers.
    pub launches: Duration,
    /// Bytes of one item over PCIe, in and out.
    pub transferred: f64,
}

/// YuNet on a frame of 640 x 448.
pub const DETECTOR: NetworkModel = NetworkModel {
    giga_operations: 0.76,
    traffic_megabytes: 486.0,
    launches: Duration::from_micros(1300),
    transferred: 640.0 * 448.0 * 3.0 * 4.0 + 0.4e6,
};
/// The embedder on a face of 128 x 128.
pub const EMBEDDER: NetworkModel = NetworkModel {
    giga_operations: 0.577,
    traffic_megabytes: 157.0,
    launches: Duration::from_micros(2400),
    transferred: 128.0 * 128.0 * 3.0 * 4.0 + 1e3,
};
/// The text detector on a torso of 256 x 320.
pub const TEXT_DETECTOR: NetworkModel = NetworkModel {
    giga_operations: 0.92,
    traffic_megabytes: 448.0,
    launches: Duration::from_micros(2600),
    transferred: 256.0 * 320.0 * 4.0 * 4.0,
};
/// The recogniser on a strip of 48 x 160.
pub const RECOGNISER: NetworkModel = NetworkModel {
    giga_operations: 0.68,
    traffic_megabytes: 296.0,
    launches: Duration::from_micros(3100),
    transferred: 48.0 * 160.0 * 3.0 * 4.0 + 6e3,
};

/// Strips of text of a photo that are recognised: all of a batch of photos, then those that may continue beyond their ends.
pub const ROUNDS_OF_STRIPS: [usize; 2] = [2, 1];

/// A kind of photo.
#[derive(Clone, Copy, Debug)]
pub struct PhotoModel {
    /// Name.
    pub name: &'static str,
    /// Pixels, 1e6.
    pub megapixels: f64,
    /// Work of a core with decoding: requests, decode, resize, encode preview and thumbnail, inputs and calls of networks.
    pub with_decoding: Duration,
    /// Work of a core without decoding and resizing.
    pub without_decoding: Duration,
}

/// The kinds of photos.
pub const PHOTOS: [PhotoModel; 2] = [
    PhotoModel {
        name: "24 MP",
        megapixels: 24.0,
        with_decoding: Duration::from_millis(181),
        without_decoding: Duration::from_millis(81),
    },
    PhotoModel {
        name: "2 MP",
        megapixels: 2.1,
        with_decoding: Duration::from_millis(108),
        without_decoding: Duration::from_millis(78),
    },
];

impl DeviceModel {
    /// The time of one call of a network with `items`: the larger of arithmetic and memory traffic, not less than its
    /// launches, and the copies. Where they overlap other calls, memory of the host is pinned.
    pub fn call_time(&self, network: &NetworkModel, items: usize, overlaps: bool) -> Duration {
        let count = items as f64;
        let arithmetic = count * network.giga_operations / (self.tera_operations * 1e3 * COMPUTE_EFFICIENCY);
        let traffic = count * network.traffic_megabytes / (self.memory_terabytes * 1e6 * MEMORY_EFFICIENCY);
        let copies = |gigabytes: f64| count * network.transferred / (gigabytes * 1e9);
        let compute = arithmetic.max(traffic).max(network.launches.as_secs_f64());
        Duration::from_secs_f64(match overlaps {
            true => compute.max(copies(self.pcie_gigabytes)),
            false => compute + copies(self.pcie_gigabytes.min(UNPINNED_GIGABYTES)),
        })
    }

    /// The time in which nvJPEG decodes a photo.
    pub fn decode_time(&self, photo: &PhotoModel) -> Duration {
        Duration::from_secs_f64(photo.megapixels * 1e6 / (self.decoder_gigapixels * 1e9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_take_what_an_h200_took() {
        let h200 = DEVICES.iter().find(|device| device.name == "H200").unwrap();
        // Milliseconds with copies of memory that is not pinned: `bench/RESULTS.md`, "One H200".
        let measured = [
            (DETECTOR, 1, 1.86),
            (DETECTOR, 16, 11.50),
            (EMBEDDER, 1, 2.46),
            (EMBEDDER, 64, 5.84),
            (TEXT_DETECTOR, 1, 2.82),
            (TEXT_DETECTOR, 64, 21.31),
            (RECOGNISER, 1, 3.09),
            (RECOGNISER, 64, 8.58),
        ];
        for (network, items, milliseconds) in measured {
            let ratio = h200.call_time(&network, items, false).as_secs_f64() * 1e3 / milliseconds;
            assert!((0.8..=1.25).contains(&ratio), "{network:?} with {items}: {ratio}");
        }
    }

    #[test]
    fn a_batch_takes_less_than_its_items_alone() {
        for device in DEVICES {
            let alone = device.call_time(&TEXT_DETECTOR, 1, false) * 16;
            assert!(device.call_time(&TEXT_DETECTOR, 16, false) < alone, "{}", device.name);
            assert!(device.call_time(&DETECTOR, 8, true) <= device.call_time(&DETECTOR, 8, false));
        }
    }
}
