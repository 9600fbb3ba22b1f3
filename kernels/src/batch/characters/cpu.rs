//! The reference.

use super::types::Character;

pub(super) fn decode(probabilities: &[f32], classes: usize) -> Vec<Character> {
    let (mut characters, mut last) = (Vec::new(), 0);
    for column in probabilities.chunks_exact(classes) {
        let character = most_probable(column);
        if character.class != last && character.class != 0 {
            characters.push(character);
        }
        last = character.class;
    }
    characters
}

fn most_probable(column: &[f32]) -> Character {
    let mut best = Character { class: 0, probability: f32::MIN };
    for (class, &probability) in column.iter().enumerate() {
        if probability > best.probability {
            best = Character { class, probability };
        }
    }
    best
}
