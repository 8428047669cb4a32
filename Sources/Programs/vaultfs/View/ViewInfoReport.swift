internal import LinuxSystem
internal import SystemPackage
internal import ViewFormats

/// The output of `info --view FILE`. `--json` has the names of the fields.
struct ViewInfoReport: Encodable {
    struct PlaylistPart: Encodable {
        /// `master` or `media`
        let kind: String
        let segments, encryptedSegments: Int
        let keys: [String]
        let method: String
        let problem: String?
    }

    struct SamplesPart: Encodable {
        /// The schemes, such as `cbcs, pattern 1:9`.
        let schemes: [String]
        let keyIDs: [String]
        let changesKeys: Bool
    }

    let path: String
    let size, sizeModulo16: UInt64
    let isSalted: Bool
    /// `empty`, `openssl`, `playlist`, `samples`, `unsupported`, `plaintext`, `ciphertext` (perhaps) or `other`. For a
    /// file named by a playlist in its directory: `segment`, `refused` or `plaintext`.
    let content: String
    let explanation: String
    let mayBeStream, mayBeStreamWithVector: Bool
    let entropy: Double?
    let playlist: PlaylistPart?
    let samples: SamplesPart?
    /// The keys named by the playlists or the boxes: URIs and identifiers.
    let keys: [String]
    /// Command lines to mount the file.
    let commands: [String]
    private let labeled: [ViewCommandLines.Line]

    private enum CodingKeys: CodingKey {
        case path, size, sizeModulo16, isSalted, content, explanation, mayBeStream, mayBeStreamWithVector, entropy
        case playlist, samples, keys, commands
    }

    /// - Parameters:
    ///   - path: as the user gave it.
    ///   - entry: the file's description.
    ///   - directory: the directory of the playlists.
    init(_ path: FilePath, _ entry: SourceSurvey.Entry, directory: FilePath) {
        let found = entry.inspection
        let size = found.size
        self.path = path.string
        self.size = size
        sizeModulo16 = size % 16
        entropy = found.entropy
        var playlist: PlaylistPart?
        var samples: SamplesPart?
        var (content, explanation): (String, String)
        switch found.content {
        case .empty: (content, explanation) = ("empty", "empty")
        case .salted:
            (content, explanation) = ("openssl", "made by 'openssl enc' with a passphrase: it has a Salted__ header")
        case .base64:
            (content, explanation) = (
                "openssl-base64", "made by 'openssl enc -a': decode it with 'base64 -d' to a file that can be mounted"
            )
        case .samples(let mp4):
            (content, explanation) = ("samples", "MP4 with encrypted samples: \(mp4.schemes.joined(separator: "; "))")
            samples = SamplesPart(
                schemes: mp4.schemes, keyIDs: mp4.keys.map(\.text), changesKeys: mp4.changesKeys)
        case .unsupported(let reason):
            (content, explanation) = ("unsupported", "MP4, and not decrypted alone: \(reason)")
        case .plaintext(let name):
            // SAMPLE-AES encrypts only the content of the packets, so they are readable.
            let end = name == SourceInspection.packetsName ? "not encrypted as a whole" : "not encrypted"
            (content, explanation) = ("plaintext", "\(name), \(end)")
        case .other(let reason): (content, explanation) = ("other", "not AES-CBC alone: \(reason)")
        case .opaque:
            (content, explanation) = (
                "ciphertext", "may be AES-CBC: its length is a multiple of 16, and its content shows no structure"
            )
        case .playlist(let parsed):
            let part = PlaylistPart(parsed)
            (content, explanation) = ("playlist", "a \(part.kind) playlist, \(part.method)")
            playlist = part
        }
        let named = entry.decision.flatMap(NamedFile.init)
        if playlist == nil, let named { (content, explanation) = (named.content, named.explanation) }
        self.playlist = playlist
        self.samples = samples
        keys = playlist?.keys ?? named?.keys ?? samples?.keyIDs ?? []
        isSalted = content == "openssl"
        mayBeStream = content == "ciphertext"
        mayBeStreamWithVector = mayBeStream && size >= 32
        self.content = content
        self.explanation = explanation
        labeled = ViewCommandLines(path: path, directory: directory).lines(for: found, named)
        commands = labeled.map(\.command)
    }

    func printLine() {
        let ids = keys.isEmpty ? "" : ", key \(keys.joined(separator: ", "))"
        Swift.print("\(path.withoutControlCharacters): \(explanation)\(ids)")
    }

    func printText() {
        Console.printField("file", path.withoutControlCharacters)
        Console.printField("content", explanation)
        Console.printField(
            "size", "\(size) bytes, \(sizeModulo16 == 0 ? "a multiple of 16" : "\(sizeModulo16) modulo 16")")
        if let entropy { Console.printField("entropy", "\((entropy * 1000).rounded() / 1000) bits a byte") }
        if mayBeStream {
            let vector = mayBeStreamWithVector ? ", its initial vector in the file or not" : ""
            Console.printField("one CBC stream", "may be\(vector)")
        }
        if let playlist { print(playlist) }
        if playlist == nil {
            for key in keys { Console.printField(KeyID(text: Array(key.utf8)) == nil ? "key" : "key ID", key) }
        }
        if samples?.changesKeys == true { Console.printField("keys", "change from fragment to fragment") }
        for line in labeled { Console.printField(line.label, line.command) }
    }

    private func print(_ playlist: PlaylistPart) {
        if playlist.kind == "media" {
            Console.printField("segments", "\(playlist.segments), \(playlist.encryptedSegments) of them encrypted")
        }
        for key in playlist.keys { Console.printField("key", key) }
        if let problem = playlist.problem { Console.printField("problem", problem) }
    }
}

extension ViewInfoReport.PlaylistPart {
    fileprivate init(_ playlist: Playlist) {
        kind = playlist.kind == .master ? "master" : "media"
        let parts = playlist.references.filter { $0.role == .segment || $0.role == .frame }
        segments = parts.count
        encryptedSegments = parts.count { $0.encryption != nil }
        keys = playlist.keys.map { HlsURI.text($0) }
        var ciphers: Set<ViewCipher> = []
        var unusable: PlaylistError?
        var usesSamples = false
        for reference in playlist.references {
            switch reference.encryption {
            case .chain(_, _, let cipher): ciphers.insert(cipher)
            case .samples: usesSamples = true
            case .unusable(let reason): unusable = unusable ?? reason
            case nil: break
            }
        }
        var methods = [(ViewCipher.aes128CBC, "AES-128"), (.aes256CBC, "AES-256")].filter { ciphers.contains($0.0) }
            .map(\.1)
        if usesSamples { methods.append("SAMPLE-AES") }
        method =
            methods.isEmpty
            ? "without keys that can be used" : methods.map { "METHOD=\($0)" }.joined(separator: " and ")
        problem = (playlist.fault ?? playlist.complaint ?? unusable).map { "line \($0.line): \($0.text)" }
    }
}

/// A file named by a playlist, as an hls view shows it.
struct NamedFile {
    let content, explanation: String
    let keys: [String]

    /// Fails for a playlist, and for a file absent from all playlists.
    init?(_ decision: FileDecision) {
        switch decision {
        case .clear(let proof): (content, explanation, keys) = ("plaintext", "not encrypted: \(proof)", [])
        case .refused(let error): (content, explanation, keys) = ("refused", "not decrypted: \(error.reason)", [])
        case .decrypted(let plan):
            guard let form = plan.form else { return nil }
            (content, explanation, keys) = ("segment", "a segment of a playlist: \(form)", plan.keyTexts)
        case .asItIs: return nil
        }
    }
}

/// The command lines to mount a file.
struct ViewCommandLines {
    struct Line {
        /// The case for which the command is right.
        let label, command: String
    }

    let path: FilePath
    /// The directory of the playlists.
    let directory: FilePath

    /// - Parameter ids: identifiers of keys.
    func hls(_ ids: [String]) -> Line {
        let command = "vaultfs view hls \((directory.isEmpty ? "." : directory).quotedForShell) MOUNTPOINT"
        return Line(label: "to mount", command: ([command] + ids.map { "--key \($0)=KEYFILE" }).joined(separator: " "))
    }

    /// Returns the lines, the likeliest first.
    /// - Parameter named: nil for a file that no playlist names.
    func lines(for found: SourceInspection, _ named: NamedFile?) -> [Line] {
        if let named {
            return named.content == "segment" ? [hls(named.keys.filter { KeyID(text: Array($0.utf8)) != nil })] : []
        }
        switch found.content {
        case .salted:
            return [
                line("if made with -pbkdf2", "openssl", "--pbkdf2"),
                line("if made with -iter N", "openssl", "--iter N"),
                line("if made without both", "openssl", ""),
            ]
        case .playlist: return [hls([])]
        case .opaque:
            let lines = [
                line("if made of pieces", "cbc-chunks", "--chunk-size SIZE --key-file KEY"),
                line("if you know the IV", "cbc", "--key-file KEY --iv HEX"),
            ]
            return lines
                + (found.size >= 32 ? [line("if the IV comes first", "cbc", "--key-file KEY --iv-in-file")] : [])
        case .samples(let mp4):
            let keys = mp4.keys.map { "--key \($0.text)=KEYFILE" }
            return [line("to mount", "mp4", keys.joined(separator: " "))]
        case .empty, .base64, .plaintext, .unsupported, .other: return []
        }
    }

    private func line(_ label: String, _ format: String, _ options: String) -> Line {
        let command = "vaultfs view \(format) \(path.quotedForShell) MOUNTPOINT"
        return Line(label: label, command: command + (options.isEmpty ? "" : " " + options))
    }
}
