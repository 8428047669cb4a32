/// Bytes that arrive in pieces, taken out as lines. Pure.
struct LineBuffer {
    enum Failure: Error, Equatable {
        /// More bytes without an end of line than allowed.
        case lineTooLong
    }

    let maximumLineSize: Int
    private var bytes: [UInt8] = []
    /// Bytes known to hold no end of line, so that a slow giant line is not searched again and again.
    private var searched = 0

    init(maximumLineSize: Int) {
        self.maximumLineSize = maximumLineSize
    }

    /// True while an incomplete line is held.
    var isHoldingPart: Bool { !bytes.isEmpty }

    mutating func append(_ piece: some Collection<UInt8>) {
        bytes += piece
    }

    /// Takes out the next line, without its LF; nil where there is none yet.
    mutating func nextLine() throws(Failure) -> [UInt8]? {
        guard let end = bytes[searched...].firstIndex(of: UInt8(ascii: "\n")) else {
            searched = bytes.count
            guard bytes.count <= maximumLineSize else { throw .lineTooLong }
            return nil
        }
        guard end <= maximumLineSize else { throw .lineTooLong }
        let line = Array(bytes[..<end])
        bytes.removeSubrange(...end)
        searched = 0
        return line
    }
}
