/// What an error is about.
enum FilePart: CustomStringConvertible {
    case file
    case lastChunk
    case range(Range<UInt64>)

    var description: String {
        switch self {
        case .file: "the file"
        case .lastChunk: "the last chunk"
        case .range(let range): "the byte range \(range.lowerBound)-\(range.upperBound)"
        }
    }
}
