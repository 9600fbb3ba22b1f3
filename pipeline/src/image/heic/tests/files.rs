//! HEIC files for tests: coded by `heifer`, put into boxes here, so that each table can be wrong.

use heifer::heifer_isobmff::BoxIter;
use image::RgbImage;

/// An item of a file.
#[derive(Clone)]
pub(super) struct Item {
    pub(super) kind: [u8; 4],
    /// Whole boxes.
    pub(super) properties: Vec<Vec<u8>>,
    pub(super) data: Vec<u8>,
}

/// What an item refers to.
pub(super) struct Reference {
    pub(super) kind: [u8; 4],
    pub(super) from: u16,
    pub(super) to: Vec<u16>,
}

/// A file as parts; the first item, number 1, is the primary one.
pub(super) struct HeicFile {
    pub(super) brand: [u8; 4],
    pub(super) items: Vec<Item>,
    pub(super) references: Vec<Reference>,
}

impl HeicFile {
    /// A file of one coded picture, with `more` properties.
    pub(super) fn single(picture: &RgbImage, more: &[Vec<u8>]) -> Self {
        let mut item = coded(picture);
        item.properties.extend_from_slice(more);
        Self { brand: *b"heic", items: vec![item], references: Vec::new() }
    }

    /// A grid whose tiles are all this one.
    pub(super) fn grid(tile: &Item, [columns, rows]: [u16; 2], [width, height]: [u16; 2]) -> Self {
        let sides = [width, height].map(u16::to_be_bytes).concat();
        let data = [&[0, 0, (rows - 1) as u8, (columns - 1) as u8][..], &sides].concat();
        let grid = Item { kind: *b"grid", properties: vec![size_box(width, height)], data };
        let tiles = usize::from(rows) * usize::from(columns);
        let mut items = vec![grid];
        items.extend(std::iter::repeat_n(tile.clone(), tiles));
        let to = (2..2 + tiles as u16).collect();
        Self { brand: *b"heic", items, references: vec![Reference { kind: *b"dimg", from: 1, to }] }
    }

    /// The bytes of the file.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let brands = plain_box(b"ftyp", &[&self.brand[..], &[0; 4], b"mif1"].concat());
        // The offsets depend on the length of the table that has them, not on what they are.
        let tables = self.tables(0);
        let tables = self.tables(brands.len() + tables.len() + 8);
        let data: Vec<u8> = self.items.iter().flat_map(|item| item.data.clone()).collect();
        [brands, tables, plain_box(b"mdat", &data)].concat()
    }

    fn tables(&self, data_start: usize) -> Vec<u8> {
        let handler = full_box(b"hdlr", 0, &[&[0; 4][..], b"pict", &[0; 13]].concat());
        let primary = full_box(b"pitm", 0, &1_u16.to_be_bytes());
        let mut references = Vec::new();
        for Reference { kind, from, to } in &self.references {
            let ids = [&[*from, to.len() as u16], to.as_slice()].concat();
            references.extend(plain_box(kind, &big_endian(&ids)));
        }
        let content =
            [handler, primary, self.names(), self.locations(data_start), full_box(b"iref", 0, &references)];
        full_box(b"meta", 0, &[content.concat(), self.properties()].concat())
    }

    fn names(&self) -> Vec<u8> {
        let name = |(id, item): (u16, &Item)| {
            full_box(b"infe", 2, &[&big_endian(&[id, 0])[..], &item.kind, &[0]].concat())
        };
        let names: Vec<u8> = (1..).zip(&self.items).flat_map(name).collect();
        full_box(b"iinf", 0, &[big_endian(&[self.items.len() as u16]), names].concat())
    }

    fn locations(&self, data_start: usize) -> Vec<u8> {
        let mut content = vec![0x44, 0];
        content.extend((self.items.len() as u16).to_be_bytes());
        let mut offset = data_start as u32;
        for (id, item) in (1_u16..).zip(&self.items) {
            content.extend(big_endian(&[id, 0, 1]));
            content.extend([offset, item.data.len() as u32].map(u32::to_be_bytes).concat());
            offset += item.data.len() as u32;
        }
        full_box(b"iloc", 0, &content)
    }

    fn properties(&self) -> Vec<u8> {
        let (mut boxes, mut count): (Vec<Vec<u8>>, u16) = (Vec::new(), 0);
        let mut associations = (self.items.len() as u32).to_be_bytes().to_vec();
        for (id, item) in (1_u16..).zip(&self.items) {
            associations.extend(id.to_be_bytes());
            associations.push(item.properties.len() as u8);
            for property in &item.properties {
                let known = boxes.iter().position(|known| known == property);
                let index = known.map_or(count + 1, |known| known as u16 + 1);
                if known.is_none() {
                    boxes.push(property.clone());
                    count += 1;
                }
                associations.extend((0x8000 | index).to_be_bytes());
            }
        }
        let mut associated = full_box(b"ipma", 0, &associations);
        // Flag 1: indices have 15 bits.
        associated[11] = 1;
        plain_box(b"iprp", &[plain_box(b"ipco", &boxes.concat()), associated].concat())
    }
}

/// A coded picture with even sides of at most 512 pixels.
pub(super) fn coded(picture: &RgbImage) -> Item {
    let options = heifer::EncodeOptions { quality: 95, max_threads: 1 };
    let (width, height) = picture.dimensions();
    let whole = heifer::encode_rgb8(width, height, picture.as_raw(), &options).unwrap();
    coded_item(&whole)
}

/// The primary item of a file of `heifer`, as it is coded there.
fn coded_item(whole: &[u8]) -> Item {
    let file = heifer::heifer_isobmff::HeifFile::parse(whole).unwrap();
    let item = file.primary_item().unwrap();
    assert_eq!(item.item_type.0, *b"hvc1");
    let indices = item.properties.iter().map(|property| usize::from(property.index) - 1);
    let data = file.item_data(item.id).unwrap().into_owned();
    let boxes = property_boxes(whole);
    Item { kind: *b"hvc1", properties: indices.map(|index| boxes[index].clone()).collect(), data }
}

/// The boxes of all properties of a file.
fn property_boxes(whole: &[u8]) -> Vec<Vec<u8>> {
    let find = |bytes: &[u8], name: &[u8; 4], skipped: usize| -> Vec<u8> {
        let found = BoxIter::new(bytes).map(Result::unwrap).find(|part| part.header.box_type.0 == *name);
        found.unwrap().content[skipped..].to_vec()
    };
    let properties = find(&find(&find(whole, b"meta", 4), b"iprp", 0), b"ipco", 0);
    BoxIter::new(&properties)
        .map(Result::unwrap)
        .map(|part| plain_box(&part.header.box_type.0, part.content))
        .collect()
}

/// A box with this name.
pub(super) fn plain_box(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    [&(content.len() as u32 + 8).to_be_bytes(), &name[..], content].concat()
}

/// A box with a version, and no flags.
pub(super) fn full_box(name: &[u8; 4], version: u8, content: &[u8]) -> Vec<u8> {
    plain_box(name, &[&[version, 0, 0, 0], content].concat())
}

/// The property of a picture's sides.
pub(super) fn size_box(width: u16, height: u16) -> Vec<u8> {
    full_box(b"ispe", 0, &[width, height].map(|side| u32::from(side).to_be_bytes()).concat())
}

/// The property of a turn, anti-clockwise, in quarters.
pub(super) fn rotation_box(quarters: u8) -> Vec<u8> {
    plain_box(b"irot", &[quarters])
}

/// The property of mirroring: 0 exchanges top and bottom, 1 left and right.
pub(super) fn mirror_box(axis: u8) -> Vec<u8> {
    plain_box(b"imir", &[axis])
}

fn big_endian(numbers: &[u16]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}
