internal import LinuxSystem

/// Four characters: the type of a box, a codec or a scheme (ISO/IEC 14496-12, 4.2).
struct Mp4Type: Hashable, Sendable, ExpressibleByStringLiteral {
    let code: UInt32

    init(code: UInt32) { self.code = code }

    init(stringLiteral text: StaticString) {
        precondition(text.utf8CodeUnitCount == 4, "internal error: a box type of \(text.utf8CodeUnitCount) bytes")
        code = text.withUTF8Buffer { $0.reduce(0) { $0 << 8 | UInt32($1) } }
    }

    /// The text for a message.
    var text: String { shown(withUnsafeBytes(of: code.bigEndian) { Array($0) }) }
}

/// A box inside a `moov` or `moof` in memory.
struct Mp4Box {
    let type: Mp4Type
    /// Offsets in the buffer: of the header, and of the contents.
    let start: Int
    let contents: Range<Int>
}

/// The bytes of a `moov` or `moof`, with its header. Each read is checked.
struct Mp4Buffer {
    let bytes: [UInt8]
    /// Offset in the file.
    let start: UInt64

    /// Returns the boxes that fill a range, except for less than 8 bytes: QuickTime ends lists with 4 zeros.
    func boxes(in range: Range<Int>, _ budget: inout Mp4Budget) throws(ViewError) -> [Mp4Box] {
        var boxes: [Mp4Box] = []
        var position = range.lowerBound
        while range.upperBound - position >= 8 {
            var fields = Mp4Fields(self, position..<range.upperBound)
            var size = UInt64(try fields.integer(UInt32.self))
            let type = Mp4Type(code: try fields.integer())
            if size == 1 { size = try fields.integer() }
            guard size >= UInt64(fields.position - position), size <= UInt64(range.upperBound - position) else {
                throw .malformed("the box \(type.text) at \(start + UInt64(position)) does not fit into its parent")
            }
            try budget.spend(.box)
            let end = position + Int(size)
            boxes.append(Mp4Box(type: type, start: position, contents: fields.position..<end))
            position = end
        }
        return boxes
    }

    func boxes(in box: Mp4Box, _ budget: inout Mp4Budget) throws(ViewError) -> [Mp4Box] {
        try boxes(in: box.contents, &budget)
    }

    /// Returns the `moov` or `moof` itself.
    func only(_ budget: inout Mp4Budget) throws(ViewError) -> Mp4Box {
        guard let box = try boxes(in: 0..<bytes.count, &budget).first else { throw contradiction("it has no header") }
        return box
    }

    /// Returns the only box of a type, or nil without one.
    func box(_ type: Mp4Type, in boxes: [Mp4Box]) throws(ViewError) -> Mp4Box? {
        let found = boxes.filter { $0.type == type }
        guard found.count < 2 else { throw contradiction("\(found.count) boxes \(type.text) where one is allowed") }
        return found.first
    }

    func required(_ type: Mp4Type, in boxes: [Mp4Box]) throws(ViewError) -> Mp4Box {
        guard let box = try box(type, in: boxes) else { throw contradiction("there is no box \(type.text)") }
        return box
    }

    func fields(of box: Mp4Box) -> Mp4Fields { Mp4Fields(self, box.contents) }

    /// - Parameter text: the place where the boxes cannot all be true.
    func contradiction(_ text: String) -> ViewError {
        .malformed("the boxes at \(start) contradict each other: \(text)")
    }

    /// Returns the change of the box's type to another.
    func renaming(_ box: Mp4Box, to type: Mp4Type) -> Mp4Patch {
        Mp4Patch(offset: start + UInt64(box.start) + 4, type: type)
    }
}

/// Reads big-endian numbers of a box one after another.
struct Mp4Fields {
    private let buffer: Mp4Buffer
    private let end: Int
    private(set) var position: Int

    init(_ buffer: Mp4Buffer, _ range: Range<Int>) {
        self.buffer = buffer
        (position, end) = (range.lowerBound, range.upperBound)
    }

    var remaining: Int { end - position }

    mutating func integer<Number: FixedWidthInteger>(_ type: Number.Type = Number.self) throws(ViewError) -> Number {
        let end = position + Number.bitWidth / 8
        try check(end - position)
        var value: Number = 0
        while position < end {
            value = value << 8 | Number(truncatingIfNeeded: buffer.bytes[position])
            position += 1
        }
        return value
    }

    mutating func skip(_ count: Int) throws(ViewError) {
        try check(count)
        position += count
    }

    /// Reads the version and the flags at the beginning of a full box.
    mutating func versionAndFlags() throws(ViewError) -> (version: UInt8, flags: UInt32) {
        let word: UInt32 = try integer()
        return (UInt8(word >> 24), word & 0xFF_FFFF)
    }

    /// Reads the number of entries, and checks that the box has room for so many of at least `size` bytes.
    mutating func count(ofSize size: Int, _ budget: inout Mp4Budget) throws(ViewError) -> Int {
        let count = Int(try integer(UInt32.self))
        try check(count, ofSize: size)
        try budget.spend(.entry, count)
        return count
    }

    /// Checks that there is room for so many entries.
    func check(_ count: Int, ofSize size: Int) throws(ViewError) { if count > remaining / size { throw tooShort } }

    /// Reads an initial vector of 8 or 16 bytes. With 8 bytes, the rest is zero.
    mutating func vector(_ size: UInt8) throws(ViewError) -> InitialVector {
        InitialVector(high: try integer(), low: size == 16 ? try integer() : 0)
    }

    private func check(_ count: Int) throws(ViewError) { if remaining < count { throw tooShort } }

    private var tooShort: ViewError {
        buffer.contradiction("a box ends at \(buffer.start + UInt64(end)), before its fields")
    }
}

/// Four bytes of the file, shown by the view as another box type.
struct Mp4Patch: Equatable, Sendable {
    let offset: UInt64
    let type: Mp4Type
}
