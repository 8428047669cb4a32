import Foundation
import LinuxSystem
import TestSupport
import Testing

@testable import Control

/// Comparison of the protocol's manual page with the code.
@Suite struct ControlSocketTests {
    private static let page: String = {
        let file = "\(Products.root)/Sources/Serving/Control/Control.docc/ControlSocket.md"
        return (try? String(contentsOfFile: file, encoding: .utf8)) ?? ""
    }()

    @Test("every example parses, and every request and event has one")
    func everyExampleParses() throws {
        var requests: Set<String> = []
        var events: Set<String> = []
        for example in Self.page.matches(of: /```json\n(.*?)```/.dotMatchesNewlines()) {
            var request = ControlRequest.status
            for line in example.1.split(separator: "\n") {
                let data = Data(line.utf8)
                if line.hasPrefix("{\"request\"") {
                    do {
                        request = try data.withUnsafeBytes { try ControlRequest.parse($0) }
                    } catch let failure as ControlFailure {
                        #expect(failure.code == .unknownRequest)
                    }
                    requests.insert(request.name)
                } else if case .events = request {
                    events.insert(try JSONDecoder().decode(ControlEvent.self, from: data).event)
                } else {
                    let response = try ControlResponse.parse(data, to: request)
                    // Encode it as the daemon would, so that an ignored part of the example is noticed.
                    #expect(String(decoding: jsonLine(response).dropLast(), as: UTF8.self) == line)
                }
            }
        }
        #expect(requests == ["status", "sync", "lock", "unlock", "events"])
        #expect(
            events == [
                "state", "will-lock", "did-lock", "will-unlock", "did-unlock", "denied", "integrity-error",
                "problem",
            ])
    }

    @Test("codes, limits and the name of the socket are as the page says")
    func codesLimitsAndName() {
        for code in ControlFailure.Code.allCases {
            #expect(Self.page.contains("| `\(code.rawValue)` |"), "\(code.rawValue)")
        }
        let name = RuntimeDirectory.socketName(mountpoint: Array("/home/ada/Private".utf8))
        let limits = [
            name.description,
            "| \(ControlRequest.maximumSize >> 20) MiB; without the secret "
                + "\(ControlRequest.maximumPlainSize >> 10) KiB |",
            "| \(ControlServer.clientTimeout.components.seconds) s, then the daemon hangs up |",
            "| \(ControlServer.maximumHeldBytes >> 20) MiB |", "| \(ControlServer.maximumClients); beyond",
            "| \(ControlServer.maximumSubscribers) of them |",
            "| \(ControlConnection.maximumUnreadEvents >> 10) KiB, then the daemon hangs up |",
            "| \(ControlResponse.maximumSize >> 20) MiB |",
        ]
        for limit in limits { #expect(Self.page.contains(limit), "\(limit)") }
    }
}
