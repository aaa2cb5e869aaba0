//! Which partition a key belongs to: murmur2 as Kafka's default partitioner computes it, so that producers of both
//! protocols agree on every key.

/// The partition of `key` among `partitions`, which is at least 1.
pub fn partition_of_key(key: &[u8], partitions: u32) -> u32 {
    assert!(partitions > 0, "a topic has at least one partition");
    (murmur2(key) & 0x7fff_ffff) % partitions
}

/// MurmurHash2, 32 bits, with the seed that Kafka's clients use. They read it as a signed number.
pub fn murmur2(key: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let mut hash = SEED ^ key.len() as u32;
    let (words, tail) = key.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k = (k ^ k >> 24).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    if !tail.is_empty() {
        let rest = tail.iter().rev().fold(0, |rest, byte| rest << 8 | u32::from(*byte));
        hash = (hash ^ rest).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys and the signed hashes that Kafka's clients compute for them.
    const KNOWN: [(&[u8], i32); 6] = [
        (b"21", -973_932_308),
        (b"foobar", -790_332_482),
        (b"a-little-bit-long-string", -985_981_536),
        (b"a-little-bit-longer-string", -1_486_304_829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        (b"abc", 479_470_107),
    ];

    #[test]
    fn keys_hash_as_kafka_clients_hash_them() {
        for (key, hash) in KNOWN {
            assert_eq!(murmur2(key) as i32, hash, "{}", String::from_utf8_lossy(key));
        }
    }

    #[test]
    fn a_negative_hash_loses_its_sign_bit_and_not_its_sign() {
        // -973932308 & 0x7fffffff = 1173551340; its absolute value would give another partition.
        assert_eq!(partition_of_key(b"21", 1000), 340);
        assert_eq!(partition_of_key(b"abc", 1000), 107);
    }

    #[test]
    fn every_key_has_a_partition_of_the_topic() {
        for partitions in [1, 2, 3, 1024] {
            for key in 0..1000u32 {
                assert!(partition_of_key(&key.to_be_bytes(), partitions) < partitions);
            }
            assert!(partition_of_key(b"", partitions) < partitions);
        }
    }
}
