internal import LinuxSystem

/// The identifier of a key in an MP4 file (KID, ISO/IEC 23001-7).
package struct KeyID: Hashable, Sendable {
    let high, low: UInt64

    /// Parses 32 hexadecimal digits, also in the groups of a UUID.
    package init?(text: [UInt8]) {
        let digits = text.filter { $0 != UInt8(ascii: "-") }
        guard text.count == 32 || (text.count == 36 && digits.count == 32),
            let vector = InitialVector(digits: digits[...])
        else { return nil }
        (high, low) = (vector.high, vector.low)
    }

    init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }

    /// True for the identifier that packagers write if fragments name the keys.
    var isZero: Bool { high == 0 && low == 0 }

    /// 32 lower-case digits.
    package var text: String { Hexadecimal.encode(high) + Hexadecimal.encode(low) }
}

/// The encryption of the samples of a track or a group: `tenc` or `seig` (ISO/IEC 23001-7, 8.2 and 6).
struct Mp4Protection: Equatable, Sendable {
    enum Scheme: Equatable, Sendable {
        /// Each protected range of a sample begins anew with the vector, and has a pattern.
        case cbcs
        /// All protected ranges of a sample are one chain.
        case cbc1
    }

    let scheme: Scheme
    /// False for clear samples.
    let isProtected: Bool
    /// Number of encrypted blocks, and of clear blocks after them. Zero for both without a pattern.
    let crypt, skip: UInt8
    /// Bytes of each sample's own vector: 0, 8 or 16.
    let vectorSize: UInt8
    let key: KeyID
    /// The vector of all samples that have no vectors of their own.
    let vector: InitialVector

    /// Reads the common fields of `tenc` and `seig`, from the reserved byte on.
    /// - Parameter hasPattern: false for version 0 of `tenc`.
    init(
        _ fields: inout Mp4Fields, _ scheme: Scheme, hasPattern: Bool, in buffer: Mp4Buffer
    ) throws(ViewError) {
        let reserved: UInt8 = try fields.integer()
        guard reserved == 0 else { throw .malformed("several keys in one sample, which is not supported") }
        let pattern: UInt8 = try fields.integer()
        (crypt, skip) = hasPattern && scheme == .cbcs ? (pattern >> 4, pattern & 15) : (0, 0)
        guard crypt > 0 || skip == 0 else { throw buffer.contradiction("a pattern that encrypts nothing") }
        let flag: UInt8 = try fields.integer()
        guard flag < 2 else { throw buffer.contradiction("isProtected is \(flag)") }
        isProtected = flag == 1
        vectorSize = try fields.integer()
        key = KeyID(high: try fields.integer(), low: try fields.integer())
        guard [0, 8, 16].contains(vectorSize) else {
            throw buffer.contradiction("an initial vector of \(vectorSize) bytes")
        }
        self.scheme = scheme
        guard isProtected && vectorSize == 0 else {
            vector = .zero
            return
        }
        let size: UInt8 = try fields.integer()
        guard size == 8 || size == 16 else { throw buffer.contradiction("a constant initial vector of \(size) bytes") }
        vector = try fields.vector(size)
    }

    /// The text for a message: `cbcs, pattern 1:9`.
    var text: String {
        switch scheme {
        case .cbc1: "cbc1"
        case .cbcs: crypt == 0 ? "cbcs, whole samples" : "cbcs, pattern \(crypt):\(skip)"
        }
    }
}

extension Mp4Buffer {
    /// Returns the protection of a sample entry, from its `sinf`, and the format of its samples.
    func protection(
        of entry: Mp4Box, _ sinf: Mp4Box, _ budget: inout Mp4Budget
    ) throws(ViewError) -> (Mp4Protection, format: Mp4Type) {
        let parts = try boxes(in: sinf, &budget)
        var fields = fields(of: try required("schm", in: parts))
        try fields.skip(4)
        let scheme: Mp4Protection.Scheme
        switch Mp4Type(code: try fields.integer()) {
        case "cbcs": scheme = .cbcs
        case "cbc1": scheme = .cbc1
        case let other where other == "cenc" || other == "cens":
            throw .malformed(
                "the scheme \(other.text) is AES-CTR, which is not supported: only cbcs and cbc1 are AES-CBC")
        case let other: throw .malformed("the scheme \(other.text) is not supported, only cbcs and cbc1 are")
        }
        fields = self.fields(of: try required("tenc", in: boxes(in: required("schi", in: parts), &budget)))
        let version = try fields.versionAndFlags().version
        guard version < 2 else { throw .malformed("several keys in one sample, which is not supported") }
        let protection = try Mp4Protection(&fields, scheme, hasPattern: version == 1, in: self)
        fields = self.fields(of: try required("frma", in: parts))
        return (protection, Mp4Type(code: try fields.integer()))
    }

    /// Returns the groups of samples with protections of their own: `sgpd` of the type `seig`. Nil for another type.
    func groups(
        _ sgpd: Mp4Box, _ scheme: Mp4Protection.Scheme, _ budget: inout Mp4Budget
    ) throws(ViewError) -> [Mp4Protection]? {
        guard try isOfKeys(sgpd) else { return nil }
        var fields = fields(of: sgpd)
        let version = try fields.versionAndFlags().version
        try fields.skip(4)
        let length = version == 1 ? Int(try fields.integer(UInt32.self)) : 0
        // Refuse a default for samples without an sbgp. Packagers do not use it for keys.
        if version >= 2, try fields.integer(UInt32.self) != 0 {
            throw .malformed("an sgpd with a default group, which is not supported")
        }
        let count = try fields.count(ofSize: 20, &budget)
        try budget.spend(.protection, count)
        var groups: [Mp4Protection] = []
        for _ in 0..<count {
            let size = version == 1 && length == 0 ? Int(try fields.integer(UInt32.self)) : length
            let start = fields.position
            groups.append(try Mp4Protection(&fields, scheme, hasPattern: true, in: self))
            guard size == 0 || fields.position - start == size else {
                throw contradiction("a group of \(size) bytes, of which \(fields.position - start) have a meaning")
            }
        }
        return groups
    }
    /// Returns true if an `sgpd` or `sbgp` groups samples by their keys.
    func isOfKeys(_ box: Mp4Box) throws(ViewError) -> Bool {
        var fields = fields(of: box)
        try fields.skip(4)
        return Mp4Type(code: try fields.integer()) == "seig"
    }
}
