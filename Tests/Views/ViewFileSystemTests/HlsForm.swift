import TestSupport

/// A form of a download that a view has once shown wrongly, or must not show wrongly.
enum HlsForm: String, CaseIterable, Sendable {
    // SAMPLE-AES with a wrong init segment.
    case initEmpty, initErrorPage, initCut, initMissing, initOfClearFilm, initOfClearFilmWithSenc,
        initOfClearFilmWithSaiz, initAtOffset, initWrongRange, twoInits, noMap
    case segmentWithOwnInit, segmentWithOtherInit, segmentAfterJunk, segmentAfterUuid, segmentAfterSsix,
        transportUnderSamples, segmentErrorPageUnderSamples, someKeyMissingUnderSamples
    // URIs with a query, and names shared by several URIs or files.
    case mapQueriesKept, mapQueriesFirstEncrypted, mapQueriesLastClear, mapQueriesLastEncrypted
    case segmentErrorPageWithoutQuery, segmentOtherWithoutQuery, segmentQueriesCollapsed, samplesQueriesCollapsed,
        segmentServersCollapsed, mapOtherWithoutQuery, keyOtherWithoutQuery, decodedOther, literalErrorPage
    // Byte ranges of one file.
    case partBesideRanges, partAcrossRanges, unknownOfRanges, rangesGone, rangeOfWhole, mapRangeOfWhole
    // Playlists over the same segments.
    case nameOfTwo, nameWithAndWithoutQuery
    case keyTokens, keyServers, keyAbsoluteAndRelative, keyTokensOfTwoKeys, keyTokensLastKept, keyTokensContradict,
        vectorsContradict
    // Playlists that do not look like one.
    case playlistGzip, playlistUTF16, playlistBlankFirst, playlistAttributes, playlistOtherName, playlistMediaName,
        playlistQueryName, playlistFirstLine
    // Nothing can be decrypted.
    case masterOnly, keyLinesGone
    // Tags.
    case unknownValue, unknownAttribute, unknownUnparsed, unknownURI, unknownLine, unknownOfSegment, mapUnparsed,
        partUnparsed, partOwnFile, partOfSegment, preloadHint, partOfClearSegment, keyUnparsed, vectorUnparsed
    // Syntax with different meanings for different players.
    case methodTwice, vectorTwice, nulInLine, nulBeforeKey, variableInName, variableTwice
    case counterRanges, counterFiles, methodUnknown
    // Missing and damaged files.
    case segmentMissing, segmentCut, segmentEmpty, segmentErrorPage, segmentDecrypted, segmentIsPlaylist,
        beginsLikeJPEG, keyMissing, someKeyMissing, keyWrong, keyErrorPage

    /// True for forms that the view must decrypt.
    var isCorrect: Bool {
        switch self {
        case .segmentAfterUuid, .segmentAfterSsix, .mapQueriesKept, .segmentErrorPageWithoutQuery,
            .mapOtherWithoutQuery,
            .keyOtherWithoutQuery, .keyTokens, .keyServers, .keyAbsoluteAndRelative, .keyTokensOfTwoKeys, .rangeOfWhole,
            .mapRangeOfWhole,
            .playlistQueryName, .beginsLikeJPEG:
            true
        default: false
        }
    }
}

extension HlsTree {
    private static let errorPage = Array("<!DOCTYPE html>\n<html><body>404 Not Found</body></html>\n".utf8)

    /// Returns a tree with a playlist of this form.
    static func broken(_ form: HlsForm, seed: UInt64) throws -> HlsTree {
        var tree = HlsTree(seed: seed)
        try tree.add(form)
        return tree
    }

    /// Returns a tree with one or two such playlists beside correct ones.
    static func mixed(seed: UInt64) throws -> HlsTree {
        var tree = try correct(seed: seed)
        for _ in 0..<tree.pick([1, 1, 2]) { try tree.add(tree.pick(HlsForm.allCases)) }
        return tree
    }

    mutating func add(_ form: HlsForm) throws {
        title.append(form.rawValue)
        // The view reports a decoy because it looks like a segment, but no playlist names it.
        isSilent = false
        let first = streams.count
        switch form {
        case .initEmpty, .initErrorPage, .initCut, .initMissing, .initOfClearFilm, .initOfClearFilmWithSenc,
            .initOfClearFilmWithSaiz, .initAtOffset, .initWrongRange, .twoInits, .noMap:
            try addWrongInit(form)
        case .segmentWithOwnInit, .segmentWithOtherInit, .segmentAfterJunk, .segmentAfterUuid, .segmentAfterSsix,
            .transportUnderSamples, .segmentErrorPageUnderSamples, .someKeyMissingUnderSamples:
            try addWrongFragment(form)
        case .mapQueriesKept, .mapQueriesFirstEncrypted, .mapQueriesLastClear, .mapQueriesLastEncrypted:
            try addMapQueries(form)
        case .segmentErrorPageWithoutQuery, .segmentOtherWithoutQuery, .segmentQueriesCollapsed,
            .samplesQueriesCollapsed, .segmentServersCollapsed, .mapOtherWithoutQuery, .keyOtherWithoutQuery,
            .decodedOther, .literalErrorPage:
            try addNames(form)
        case .partBesideRanges, .partAcrossRanges, .unknownOfRanges, .rangesGone, .rangeOfWhole, .mapRangeOfWhole:
            try addRanges(form)
        case .nameOfTwo: try addNameOfTwo()
        case .nameWithAndWithoutQuery:
            let number = try addStream(
                Options(
                    method: .chain, container: .transport, isSingleFile: false, style: .plain, count: 2...3,
                    rotates: false, hasClear: false))
            let first = streams[number].segments[0].resource
            streams[number].segments[1].resource.uri = "\(first.uri)?n=1"
            streams[number].segments[1].resource.file = first.file
            streams[number].segments[1].resource.original = .impossible
        case .keyTokens, .keyServers, .keyAbsoluteAndRelative, .keyTokensOfTwoKeys, .keyTokensLastKept,
            .keyTokensContradict, .vectorsContradict:
            try addTokens(form)
        case .playlistGzip, .playlistUTF16, .playlistBlankFirst, .playlistAttributes, .playlistOtherName,
            .playlistMediaName, .playlistQueryName, .playlistFirstLine:
            try addOtherText(form)
        case .masterOnly, .keyLinesGone: try addNothingDecrypted(form)
        case .unknownValue, .unknownAttribute, .unknownUnparsed, .unknownURI, .unknownLine, .unknownOfSegment,
            .mapUnparsed, .partUnparsed, .partOwnFile, .partOfSegment, .preloadHint, .partOfClearSegment, .keyUnparsed,
            .vectorUnparsed:
            try addTags(form)
        case .methodTwice, .vectorTwice, .nulInLine, .nulBeforeKey, .variableInName, .variableTwice:
            try addSyntax(form)
        case .counterRanges, .counterFiles, .methodUnknown: try addMethod(form)
        case .segmentMissing, .segmentCut, .segmentEmpty, .segmentErrorPage, .segmentDecrypted, .segmentIsPlaylist,
            .beginsLikeJPEG, .keyMissing, .someKeyMissing, .keyWrong, .keyErrorPage:
            try addDamage(form)
        }
        if !form.isCorrect { for number in first..<streams.count { streams[number].isCorrect = false } }
    }

    private func stored(_ resource: Resource) -> [UInt8] {
        let bytes = resource.file.flatMap { files[$0] } ?? []
        return resource.range.map { Array(bytes[$0]) } ?? bytes
    }

    /// Picks an encrypted segment, and returns its position.
    private mutating func encrypted(of number: Int) -> Int {
        pick(streams[number].segments.indices.filter { streams[number].segments[$0].resource.keyLine != nil })
    }

    private mutating func replace(_ resource: Resource, by bytes: [UInt8]?) {
        if let file = resource.file { files[file] = bytes }
    }

    // MARK: Init segments

    private mutating func addWrongInit(_ form: HlsForm) throws {
        let number = try addStream(Options(method: .samples, isSingleFile: false, mapStyle: .plain, hasClear: false))
        let maker = streams[number].makers[0]
        let map = streams[number].maps[0]
        let initial = stored(map)
        switch form {
        case .initEmpty: replace(map, by: [])
        case .initErrorPage: replace(map, by: Self.errorPage)
        case .initCut:
            // The cut may also be inside the first box's header.
            let count = Int.random(in: 1..<(chance(30) ? 8 : initial.count), using: &random)
            replace(map, by: Array(initial.prefix(count)))
        case .initMissing: replace(map, by: nil)
        case .initAtOffset:
            let junk = chance(50) ? random.bytes(50) : Mp4Maker.box("free", random.bytes(20))
            replace(map, by: junk + initial)
            streams[number].maps[0].range = junk.count..<(junk.count + initial.count)
        case .initWrongRange:
            streams[number].maps[0].range = pick([0..<100, 20..<initial.count, 5000..<6000])
        case .twoInits:
            let other = try addStream(Options(method: .samples, isSingleFile: false, mapStyle: .plain, hasClear: false))
            let second = stored(streams[other].maps[0])
            replace(map, by: initial + second)
            replace(streams[other].maps[0], by: nil)
            streams[number].maps[0].range = 0..<initial.count
            streams[other].maps[0].file = map.file
            streams[other].maps[0].range = initial.count..<(initial.count + second.count)
            let depth = streams[other].directory.isEmpty ? "" : "../"
            streams[other].maps[0].uri = depth + (map.file ?? "")
        case .noMap: for index in streams[number].segments.indices { streams[number].segments[index].map = nil }
        default:
            // The clear film's init segment may contradict the fragments.
            var maker = maker
            maker.isVideo = form != .initOfClearFilm
            maker.vectorSize = 0
            maker.isGrouped = false
            maker.information = form == .initOfClearFilmWithSaiz ? .auxiliary : .senc
            for index in streams[number].maps.indices {
                replace(streams[number].maps[index], by: maker.initial(isProtected: false))
            }
            for index in streams[number].segments.indices {
                let fragment = try maker.fragment(index, &random)
                replace(streams[number].segments[index].resource, by: fragment.stored)
                streams[number].segments[index].resource.original = .sampled(fragment.clear)
            }
        }
    }

    private mutating func addWrongFragment(_ form: HlsForm) throws {
        let rotates = form == .someKeyMissingUnderSamples
        let number = try addStream(
            Options(
                method: .samples, isSingleFile: rotates ? nil : false, count: rotates ? 3...5 : 1...4,
                rotates: rotates ? true : nil, hasClear: false))
        let index = encrypted(of: number)
        let segment = streams[number].segments[index]
        guard case .sampled(let clear) = segment.resource.original else { throw TestFailure("not encrypted") }
        var prefix: [UInt8] = []
        switch form {
        case .segmentWithOwnInit: prefix = stored(streams[number].maps[segment.map ?? 0])
        case .segmentWithOtherInit: prefix = streams[number].makers[0].initial(isProtected: false)
        case .segmentAfterJunk: prefix = pick([Array("junk".utf8), random.bytes(40), [0], Self.errorPage])
        case .segmentAfterUuid: prefix = Mp4Maker.box("uuid", random.bytes(chance(50) ? 16 : 24))
        case .segmentAfterSsix: prefix = Mp4Maker.box("ssix", Mp4Maker.big(0, 8))
        case .transportUnderSamples:
            replace(segment.resource, by: [0x47] + random.bytes(187))
            streams[number].segments[index].resource.original = .impossible
            return
        case .segmentErrorPageUnderSamples:
            replace(segment.resource, by: Self.errorPage)
            streams[number].segments[index].resource.original = .clear
            return
        default:
            let line = pick(Array(streams[number].keyLines.indices))
            let identifier = hex(streams[number].makers[line].identifier)
            files[streams[number].directory + identifier + ".key"] = nil
            (given[identifier], given[streams[number].keyLines[line].uri]) = (nil, nil)
            if let file = streams[number].keyLines[line].file { files[file] = nil }
            streams[number].keyLines[line].uri = "skd://film"
            for index in streams[number].segments.indices where streams[number].segments[index].resource.keyLine == line
            {
                streams[number].segments[index].resource.original = .impossible
            }
            return
        }
        replace(segment.resource, by: prefix + stored(segment.resource))
        streams[number].segments[index].resource.original = .sampled(prefix + clear)
    }

    /// A clear init segment before the first key line, and one for each of two keys, by URIs with different queries.
    private mutating func addMapQueries(_ form: HlsForm) throws {
        let number = try addStream(
            Options(
                method: .samples, isSingleFile: false, mapStyle: .plain, count: 2...2, rotates: true, hasClear: false,
                atRoot: true))
        var makers = streams[number].makers
        let namesKeys = chance(50)
        let base = "iq\(number).mp4"
        for map in streams[number].maps { replace(map, by: nil) }
        streams[number].maps = []
        var bytes: [[UInt8]] = []
        for index in 0..<2 {
            makers[index].isGrouped = false
            makers[index].isVideo = makers[0].isVideo
            let fragment = try makers[index].fragment(index, &random)
            replace(streams[number].segments[index].resource, by: fragment.stored)
            streams[number].segments[index].resource.original = .sampled(fragment.clear)
            streams[number].segments[index].map = index
            if namesKeys { streams[number].keyLines[index].attributes += ",KEYID=0x\(hex(makers[index].identifier))" }
            files["\(hex(makers[index].identifier)).key"] = makers[index].key
            bytes.append(makers[index].initial())
            let uri = "\(base)?t=\(index)"
            streams[number].maps.append(Resource(uri: uri, file: uri, original: .initial))
        }
        streams[number].mapsFirst = false
        let clear = makers[0].initial(isProtected: false)
        if chance(60) { streams[number].header.append("#EXT-X-MAP:URI=\"\(base)\"") }
        switch form {
        case .mapQueriesLastClear: files[base] = clear
        case .mapQueriesLastEncrypted: files[base] = bytes[1]
        default:
            files[base] = form == .mapQueriesFirstEncrypted ? bytes[0] : clear
            for index in 0..<2 { files["\(base)?t=\(index)"] = bytes[index] }
        }
    }

    // MARK: Names

    private mutating func addNames(_ form: HlsForm) throws {
        switch form {
        case .segmentErrorPageWithoutQuery, .segmentOtherWithoutQuery:
            let number = try addStream(Options(method: .chain, isSingleFile: false, style: .keptQuery, hasClear: false))
            let resource = streams[number].segments[encrypted(of: number)].resource
            let other = try encrypt(random.bytes(188), streams[number].keyLines[resource.keyLine ?? 0], 0)
            let bare = String((resource.file ?? "").prefix { $0 != "?" })
            files[bare] = form == .segmentErrorPageWithoutQuery ? Self.errorPage : other
        case .segmentQueriesCollapsed, .samplesQueriesCollapsed, .segmentServersCollapsed:
            let isSamples = form == .samplesQueriesCollapsed
            let number = try addStream(
                Options(
                    method: isSamples ? .samples : .chain, isSingleFile: false, style: .plain, count: 2...3,
                    hasClear: false))
            // All segments have one name, under which the last one was saved.
            let base = "c\(number).bin"
            let last = streams[number].segments.count - 1
            for index in streams[number].segments.indices {
                let resource = streams[number].segments[index].resource
                if index == last { files[streams[number].directory + base] = files[resource.file ?? ""] }
                replace(resource, by: nil)
                streams[number].segments[index].resource.file = streams[number].directory + base
                streams[number].segments[index].resource.uri =
                    form == .segmentServersCollapsed ? "https://s\(index).example/\(base)" : "\(base)?n=\(index)"
                if index < last { streams[number].segments[index].resource.original = .asPlayed }
            }
        case .mapOtherWithoutQuery:
            let number = try addStream(
                Options(method: .samples, isSingleFile: false, mapStyle: .keptQuery, hasClear: false))
            var other = streams[number].makers[0]
            (other.identifier, other.vector) = (random.bytes(16), random.bytes(16))
            let bare = String((streams[number].maps[0].file ?? "").prefix { $0 != "?" })
            files[bare] = other.initial(isProtected: chance(70))
        case .keyOtherWithoutQuery:
            let number = try addStream(Options(method: .chain, keyStyle: .keptQuery, hasClear: false))
            let bare = String((streams[number].keyLines[0].file ?? "").prefix { $0 != "?" })
            files[bare] = wrongKey(for: number)
        default:
            // Of `a%20b` and `a b` the download saved the literal name, unless only the other file can be decrypted.
            let isLiteral = form == .decodedOther
            let number = try addStream(
                Options(
                    method: .chain, isSingleFile: false, style: isLiteral ? .keptEncoded : .encoded, hasClear: false))
            let file = streams[number].segments[0].resource.file ?? ""
            if isLiteral {
                files[file.replacing("%20", with: " ")] = pick([Self.errorPage, random.bytes(64)])
            } else {
                files[file.replacing("a ", with: "a%20")] = Self.errorPage
            }
        }
    }

    /// Returns a key that gives none of the playlist's segments a padding.
    private mutating func wrongKey(for number: Int) -> [UInt8] {
        while true {
            let key = random.bytes(16)
            let fits = (streams[number].segments.map(\.resource) + streams[number].maps).contains { resource in
                // Any vector will do, because it changes only the first of several blocks.
                let vector = [UInt8](repeating: 0, count: 16)
                let plaintext = try? cbc(stored(resource), key: key, vector: vector, encrypts: false)
                let last = Int(plaintext?.last ?? 0)
                return 1...16 ~= last && plaintext?.suffix(last).allSatisfy { $0 == last } == true
            }
            if !fits { return key }
        }
    }

    private mutating func addTokens(_ form: HlsForm) throws {
        let number = try addStream(
            Options(
                method: .chain, keyStyle: .plain, rotates: false, hasClear: false,
                impliesVector: form == .vectorsContradict ? true : nil, atRoot: true))
        let file = streams[number].keyLines[0].file ?? ""
        let lines = streams[number].keyLines.indices
        switch form {
        case .keyTokens, .keyServers, .keyAbsoluteAndRelative:
            let uris = [
                [HlsForm.keyServers: "https://a.example/\(file)"][form] ?? "https://k.example/\(file)?token=1",
                form == .keyServers
                    ? "https://b.example/\(file)" : form == .keyTokens ? "https://k.example/\(file)?token=2" : file,
            ]
            let isRelative = form == .keyTokens && chance(50)
            let other = addCopy(of: number)
            for (stream, uri) in zip([number, other], uris) {
                for line in lines {
                    streams[stream].keyLines[line].uri =
                        isRelative ? uri.replacing("https://k.example/", with: "") : uri
                }
            }
        case .vectorsContradict:
            let other = addCopy(of: number)
            streams[other].sequence += 1
            streams[other].isFrames = false
            for index in streams[other].segments.indices {
                streams[other].segments[index].resource.original = .impossible
            }
        case .keyTokensContradict:
            let other = addCopy(of: number)
            files["\(file)?t=1"] = files[file]
            files["\(file)?t=2"] = wrongKey(for: number)
            files[file] = nil
            for line in lines {
                streams[number].keyLines[line].uri = "\(file)?t=1"
                streams[other].keyLines[line].uri = "\(file)?t=2"
            }
        default:
            // Make two playlists with segments and a key each.
            let other = try addStream(
                Options(method: .chain, keyStyle: .plain, rotates: false, hasClear: false, atRoot: true))
            let second = streams[other].keyLines[0].file ?? ""
            files["\(file)?t=2"] = files[second]
            files["\(file)?t=1"] = files[file]
            files[second] = nil
            files[file] = nil
            if form == .keyTokensLastKept {
                files[file] = files["\(file)?t=2"]
                (files["\(file)?t=1"], files["\(file)?t=2"]) = (nil, nil)
                for index in streams[number].segments.indices {
                    streams[number].segments[index].resource.original = .asPlayed
                }
                for index in streams[number].maps.indices where streams[number].maps[index].keyLine != nil {
                    streams[number].maps[index].original = .asPlayed
                }
            }
            for line in lines { streams[number].keyLines[line].uri = "\(file)?t=1" }
            for line in streams[other].keyLines.indices { streams[other].keyLines[line].uri = "\(file)?t=2" }
        }
    }

    // MARK: Ranges

    private mutating func addRanges(_ form: HlsForm) throws {
        let isWhole = form == .rangeOfWhole || form == .mapRangeOfWhole
        let number = try addStream(
            Options(
                method: .chain, container: form == .mapRangeOfWhole ? .fragments : .transport,
                isSingleFile: !isWhole, count: isWhole ? 1...2 : 3...4, rotates: false, hasClear: false,
                impliesVector: false))
        let last = streams[number].segments.count - 1
        let resource = streams[number].segments[last].resource
        guard let file = resource.file, let size = files[file]?.count else { return }
        func add(_ text: String, _ original: Original) {
            streams[number].segments[last - 1].before.append((text, original))
        }
        switch form {
        case .partBesideRanges:
            guard let range = resource.range else { return }
            streams[number].segments.removeLast()
            let bytes = "BYTERANGE=\"\(range.count)@\(range.lowerBound)\""
            add("#EXT-X-PART:DURATION=1,URI=\"\(resource.uri)\",\(bytes)", resource.original)
        case .partAcrossRanges:
            guard let range = resource.range else { return }
            add("#EXT-X-PART:DURATION=1,URI=\"\(resource.uri)\",BYTERANGE=\"96@\(range.lowerBound - 48)\"", .asPlayed)
        case .unknownOfRanges:
            add(pick(["#EXT-X-NEW:URI=\"\(resource.uri)\"", "#EXT-X-NEW:SRC=\"\(resource.uri)\""]), .asPlayed)
        case .rangesGone:
            streams[number].segments.removeFirst()
            streams[number].sequence += 1
            mustBeNamed.insert(file)
        case .mapRangeOfWhole:
            let initial = streams[number].maps[0]
            streams[number].maps[0].range = 0..<stored(initial).count
        default: streams[number].segments[last].resource.range = 0..<size
        }
    }

    /// Adds two playlists with different URIs for the same file, which belongs to one of them.
    private mutating func addNameOfTwo() throws {
        let number = try addStream(
            Options(method: .chain, container: .transport, isSingleFile: false, style: .plain, hasClear: false))
        let other = addCopy(of: number)
        let isRelative = chance(30)
        for index in streams[number].segments.indices {
            let uri = streams[number].segments[index].resource.uri
            let uris = pick([
                ["https://h.example/v/\(uri)", "https://h.example/a/\(uri)"], ["\(uri)?n=1", "\(uri)?n=2"],
            ])
            streams[number].segments[index].resource.uri = isRelative ? uri : uris[0]
            streams[other].segments[index].resource.uri = uris[1]
            let stream = !isRelative && chance(50) ? number : other
            streams[stream].segments[index].resource.original = .impossible
        }
    }

    // MARK: Text

    private mutating func addOtherText(_ form: HlsForm) throws {
        let number = try addStream(Options(method: pick([.chain, .samples]), hasClear: false))
        switch form {
        case .playlistGzip:
            streams[number].encoding = { text in
                // One stored block, with a CRC of zero because readers of a beginning do not check it.
                let size = [UInt8(text.count & 255), UInt8(text.count >> 8)]
                return [0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3, 1] + size + size.map { ~$0 } + text
                    + Array(repeating: 0, count: 8)
            }
        case .playlistUTF16: streams[number].encoding = { text in [0xFF, 0xFE] + text.flatMap { [$0, 0] } }
        case .playlistBlankFirst:
            let lineEnd = Array(streams[number].lineEnd.utf8)
            streams[number].encoding = { lineEnd + $0 }
        case .playlistAttributes:
            streams[number].encoding = { text in
                Array("#EXTM3U x-tvg-url=\"a\"".utf8) + text.dropFirst("#EXTM3U".utf8.count)
            }
        case .playlistMediaName: streams[number].name = "playlist\(number).mp4"
        case .playlistQueryName: streams[number].name = "p\(number).m3u8?src=film.mp4"
        case .playlistFirstLine:
            let line = Array(pick(["#EXTM3U8", "#EXTM3U:x"]).utf8)
            streams[number].name = pick(["p\(number).m3u", "p\(number).m3u8"])
            streams[number].encoding = { text in line + text.dropFirst("#EXTM3U".utf8.count) }
        default: streams[number].name = "playlist\(number).txt"
        }
    }

    private mutating func addNothingDecrypted(_ form: HlsForm) throws {
        let number = try addStream(
            Options(method: .chain, container: .transport, isSingleFile: false, hasClear: false, atRoot: true))
        if form == .masterOnly {
            let stream = streams.remove(at: number)
            let name = "only\(number).m3u8"
            files[name] = Array("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nlost-\(stream.path)\n".utf8)
            mustBeNamed.insert(name)
            return
        }
        for index in streams[number].segments.indices {
            streams[number].segments[index].resource.keyLine = nil
            streams[number].segments[index].resource.original = .clear
        }
        if let file = streams[number].segments[0].resource.file, isRelative(streams[number].segments[0].resource.uri) {
            mustBeNamed.insert(file)
        }
    }

    /// Returns true for a URI without a server. Other URIs have unknown files if the playlist has no keys.
    private func isRelative(_ uri: String) -> Bool { !uri.contains("://") }

    // MARK: Tags

    private mutating func addTags(_ form: HlsForm) throws {
        let isMap = form == .mapUnparsed
        let number = try addStream(
            Options(
                method: .chain, container: isMap ? .fragments : nil, isSingleFile: false, style: .plain, rotates: false,
                hasClear: false))
        let index = encrypted(of: number)
        let segment = streams[number].segments[index]
        let position = streams[number].sequence + UInt64(index)
        let line = streams[number].keyLines[segment.resource.keyLine ?? 0]
        // The part is under the current key, in a file of its own.
        let content = [0x47] + random.bytes(187)
        let part = (uri: "part\(number).ts", content: Original.bytes(content))
        func addPart() throws {
            files[streams[number].directory + part.uri] = try encrypt(content, line, position)
        }
        func tag(_ text: String, _ original: Original) {
            streams[number].segments[index].before.append((text, original))
        }
        switch form {
        case .unknownValue: tag("#EXT-X-NEW:\(part.uri)", part.content)
        case .unknownAttribute: tag("#EXT-X-NEW:DURATION=1,SRC=\"\(part.uri)\"", part.content)
        case .unknownUnparsed: tag("#EXT-X-NEW:URI=\"\(part.uri)\",NEW", part.content)
        case .unknownURI: tag("#EXT-X-NEW:URI=\"\(part.uri)\"", part.content)
        case .unknownLine: tag(part.uri, part.content)
        case .unknownOfSegment: tag("#EXT-X-NEW:SRC=\"\(segment.resource.uri)\"", segment.resource.original)
        case .partUnparsed: tag("#EXT-X-PART:DURATION=1,URI=\"\(part.uri)\",INDEPENDENT", part.content)
        case .partOwnFile: tag("#EXT-X-PART:DURATION=1,URI=\"\(part.uri)\"", part.content)
        case .preloadHint: tag("#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"\(part.uri)\"", part.content)
        case .partOfSegment:
            guard case .bytes(let plaintext) = segment.resource.original else { return }
            let end = plaintext.count / 32 * 16
            for range in [0..<end, end..<(plaintext.count / 16 * 16 + 16)] where !range.isEmpty {
                let bytes = ",BYTERANGE=\"\(range.count)@\(range.lowerBound)\""
                tag(
                    "#EXT-X-PART:DURATION=1,URI=\"\(segment.resource.uri)\"\(bytes)",
                    .bytes(Array(plaintext[range.clamped(to: 0..<plaintext.count)])))
            }
        case .partOfClearSegment:
            tag("#EXT-X-PART:DURATION=1,URI=\"\(part.uri)\"", part.content)
            let resource = Resource(
                uri: part.uri, file: streams[number].directory + part.uri, original: .clear, keyLine: nil)
            streams[number].segments.append(
                Segment(resource: resource, map: streams[number].segments[index].map, frame: 0..<1))
        case .mapUnparsed:
            guard !streams[number].maps.isEmpty else { return }
            streams[number].maps[0].uri += "\",NEW,X=\""
        case .keyUnparsed:
            let text = pick([
                "#EXT-X-KEY:METHOD=AES-128,URI=\"\(line.uri)", "#EXT-X-KEY:METHOD=AES-128,NEW,URI=\"\(line.uri)\"",
            ])
            streams[number].keyLines[segment.resource.keyLine ?? 0].replacement = text
        default:
            streams[number].keyLines[segment.resource.keyLine ?? 0].vector = pick([
                "17", "0xyz", "0x" + hex(random.bytes(17)),
            ])
        }
        switch form {
        case .unknownOfSegment, .partOfSegment, .mapUnparsed, .keyUnparsed, .vectorUnparsed: break
        default: try addPart()
        }
    }

    /// Adds syntax with different meanings for different players.
    private mutating func addSyntax(_ form: HlsForm) throws {
        let number = try addStream(
            Options(
                method: .chain, container: .transport, isSingleFile: false, style: .plain, keyStyle: .plain,
                rotates: false, hasClear: false, impliesVector: false))
        let index = encrypted(of: number)
        var resource = streams[number].segments[index].resource
        let keyLine = resource.keyLine ?? 0
        let line = streams[number].keyLines[keyLine]
        switch form {
        case .methodTwice:
            streams[number].keyLines[keyLine].method = "NONE,METHOD=AES-128"
        case .vectorTwice:
            streams[number].keyLines[keyLine].vector = "0x\(hex(random.bytes(16))),IV=\(line.vector ?? "")"
        case .nulInLine, .nulBeforeKey:
            // ffmpeg (ff_get_line) ends a line at a NUL.
            let (from, to) = form == .nulInLine ? ("#EXTINF:2,", "#EXTINF:2,\0") : ("#EXT-X-KEY", "# \0#EXT-X-KEY")
            streams[number].encoding = { Array(String(decoding: $0, as: UTF8.self).replacing(from, with: to).utf8) }
            mustBeNamed.insert(streams[number].path)
        case .variableInName:
            // The file's literal name also means another file, because the playlist defines the variable.
            let value = "x\(number).ts"
            let name = "{$p}"
            streams[number].header.append("#EXT-X-DEFINE:NAME=\"p\",VALUE=\"\(value)\"")
            files[streams[number].directory + value] = try encrypt(random.bytes(188), line, 0)
            files[streams[number].directory + name] = stored(resource)
            replace(resource, by: nil)
            (resource.uri, resource.file) = ("https://h.example/%7B$p%7D", streams[number].directory + name)
            streams[number].segments[index].resource = resource
        default:
            let uri = resource.uri
            streams[number].header += ["none.ts", uri].map { "#EXT-X-DEFINE:NAME=\"u\",VALUE=\"\($0)\"" }
            streams[number].segments[index].resource.uri = "{$u}"
            streams[number].segments[index].resource.original = .impossible
            mustBeNamed.insert(streams[number].path)
        }
    }

    private mutating func addMethod(_ form: HlsForm) throws {
        let number = try addStream(
            Options(
                method: .samples, isSingleFile: form == .counterRanges, hasClear: form == .counterRanges ? nil : false))
        for line in streams[number].keyLines.indices {
            streams[number].keyLines[line].method = form == .methodUnknown ? "AES-512" : "SAMPLE-AES-CTR"
            (streams[number].keyLines[line].before, streams[number].keyLines[line].after) = ([], [])
        }
        guard form != .methodUnknown else { return }
        // Rename the boxes' scheme to match. The random bytes fit any scheme.
        for index in streams[number].segments.indices where streams[number].segments[index].resource.keyLine != nil {
            streams[number].segments[index].resource.original = .impossible
        }
        for file in Set(streams[number].maps.compactMap(\.file)) { files[file] = files[file].map(Self.renamed) }
    }

    /// Renames the scheme cbcs to cenc.
    private static func renamed(_ bytes: [UInt8]) -> [UInt8] {
        var bytes = bytes
        let (from, to) = (Array("cbcs".utf8), Array("cenc".utf8))
        for index in 0..<(bytes.count - 4) where bytes[index] == from[0] && Array(bytes[index..<(index + 4)]) == from {
            bytes.replaceSubrange(index..<(index + 4), with: to)
        }
        return bytes
    }

    // MARK: Damage

    private mutating func addDamage(_ form: HlsForm) throws {
        let isSome = form == .someKeyMissing
        let number = try addStream(
            Options(
                method: .chain, isSingleFile: false, count: isSome ? 3...5 : 1...4, rotates: isSome ? true : nil,
                hasClear: form == .segmentDecrypted ? false : nil))
        let index = encrypted(of: number)
        let resource = streams[number].segments[index].resource
        let bytes = stored(resource)
        func expect(_ original: Original) { streams[number].segments[index].resource.original = original }
        // The view can tell from the length, without a key.
        if [.segmentCut, .segmentEmpty, .segmentErrorPage].contains(form) { mustBeNamed.insert(streams[number].path) }
        switch form {
        case .segmentMissing: replace(resource, by: nil)
        case .segmentCut:
            replace(resource, by: Array(bytes.prefix(bytes.count - Int.random(in: 1...15, using: &random))))
            expect(.asPlayed)
        case .segmentEmpty:
            replace(resource, by: [])
            expect(.clear)
        case .segmentErrorPage:
            replace(resource, by: Self.errorPage)
            expect(.clear)
        case .segmentIsPlaylist:
            let name = "n\(number).m3u8"
            files[streams[number].directory + name] = Array("#EXTM3U\n#EXTINF:1,\nnone.ts\n".utf8)
            replace(resource, by: nil)
            streams[number].segments[index].resource.uri = name
            streams[number].segments[index].resource.file = streams[number].directory + name
            expect(.clear)
        case .beginsLikeJPEG:
            let line = streams[number].keyLines[resource.keyLine ?? 0]
            let vector = Self.vector(line, streams[number].sequence + UInt64(index))
            let start = [0xFF, 0xD8, 0xFF, pick([0xE0, 0xDB, 7])] + random.bytes(12)
            let content = try cbc(start, key: line.key, vector: vector, encrypts: false) + random.bytes(200)
            replace(resource, by: try encrypt(content, line, streams[number].sequence + UInt64(index)))
            expect(.bytes(content))
        case .segmentDecrypted:
            guard case .bytes(let content) = resource.original else { return }
            replace(resource, by: content)
            expect(.clear)
        default:
            let line = streams[number].keyLines[resource.keyLine ?? 0]
            let wrong: [UInt8]? =
                switch form {
                case .keyWrong: wrongKey(for: number)
                case .keyErrorPage: Self.errorPage
                default: nil
                }
            if let file = line.file { files[file] = wrong }
            // Remove a key that was given, or was in the playlist.
            given[line.uri] = nil
            if line.file == nil { streams[number].keyLines[resource.keyLine ?? 0].uri = "https://k.example/lost.key" }
            for (index, other) in streams[number].keyLines.enumerated() where other.key == line.key {
                streams[number].keyLines[index].uri = streams[number].keyLines[resource.keyLine ?? 0].uri
                for segment in streams[number].segments.indices
                where streams[number].segments[segment].resource.keyLine == index {
                    streams[number].segments[segment].resource.original = .asPlayed
                }
                for map in streams[number].maps.indices where streams[number].maps[map].keyLine == index {
                    streams[number].maps[map].original = .asPlayed
                }
            }
        }
    }
}
