//! Compression: every codec gives back what it was given, and no input takes more than the reader allows.

use super::*;

#[test]
fn every_codec_gives_back_what_it_was_given() {
    let noise: Vec<u8> = (0..200_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for codec in Codec::ALL {
        for data in [&b""[..], b"a", &[0; 100_000], &noise] {
            let compressed = codec.compress(data);
            assert_eq!(codec.decompress(compressed.into(), data.len()).unwrap(), data, "{codec}, {} bytes", data.len());
        }
    }
}

#[test]
fn the_bound_on_decompressed_bytes_is_exact() {
    let data = vec![7u8; 300_000];
    for codec in Codec::ALL {
        let compressed = Bytes::from(codec.compress(&data));
        assert_eq!(codec.decompress(compressed.clone(), data.len()).unwrap().len(), data.len());
        let limit = data.len() - 1;
        assert_eq!(codec.decompress(compressed, limit), Err(BatchError::RecordsTooLarge { limit }), "{codec}");
    }
}

#[test]
fn a_bomb_is_refused_by_readers() {
    let data = vec![0u8; 20_000_000];
    for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd, Codec::Snappy] {
        let bomb = around(codec, 1, &codec.compress(&data));
        assert!(bomb.len() < data.len() / 20, "{codec} makes {} bytes", bomb.len());
        assert!(validate(&bomb, NO_LIMIT).is_ok(), "records are opaque to the broker");
        assert_eq!(decode(bomb, 1_000_000), Err(BatchError::RecordsTooLarge { limit: 1_000_000 }), "{codec}");
    }
}

#[test]
fn an_announced_size_is_not_believed() {
    // A raw snappy block that announces 4 GiB - 1 and holds nothing.
    let raw = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert_eq!(Codec::Snappy.decompress(raw, 1 << 20), Err(BatchError::RecordsTooLarge { limit: 1 << 20 }));
}

#[test]
fn snappy_is_written_in_blocks_and_read_raw_too() {
    let data = vec![9u8; 100_000];
    let framed = Codec::Snappy.compress(&data);
    assert_eq!(framed[..16], [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1]);
    let raw = snap::raw::Encoder::new().compress_vec(&data).unwrap();
    assert_eq!(Codec::Snappy.decompress(raw.into(), data.len()).unwrap(), data);
}

#[test]
fn lz4_blocks_are_small_and_independent() {
    let frame = Codec::Lz4.compress(&[1; 200_000]);
    assert_eq!(frame[..4], 0x184d_2204u32.to_le_bytes());
    let (flags, block_size) = (frame[4], frame[5] >> 4 & 7);
    assert_eq!((flags >> 6, flags >> 5 & 1, block_size), (1, 1, 4), "version 1, independent, 64 KiB");
}

#[test]
fn garbage_and_cut_off_data_are_refused_with_the_codecs_name() {
    let data = vec![5u8; 5_000];
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let whole = codec.compress(&data);
        for bad in [&b"not compressed at all"[..], &whole[..whole.len() / 2], &[&whole[..], b"more"].concat()] {
            match codec.decompress(Bytes::copy_from_slice(bad), 1 << 20) {
                Err(error @ BatchError::Decompress { .. }) => {
                    assert!(error.to_string().contains(codec.name()), "{error}")
                }
                other => panic!("{codec} took {} bytes as {:?}", bad.len(), other.map(|b| b.len())),
            }
        }
    }
}

#[test]
fn codecs_have_the_names_that_settings_use() {
    for codec in Codec::ALL {
        assert_eq!(codec.to_string().parse::<Codec>().unwrap(), codec);
    }
    let error = "lzma".parse::<Codec>().unwrap_err();
    assert!(error.message.contains("lzma") && error.message.contains("zstd"), "{error}");
}

#[test]
fn records_that_compression_would_grow_stay_as_they_are() {
    for codec in Codec::ALL {
        let batch = build(codec, &[record("", "x", 0)], None);
        assert_eq!(BatchHeader::parse(&batch).unwrap().codec().unwrap(), Codec::None);
        assert_eq!(records_of(batch), vec![record("", "x", 0)]);
    }
}
