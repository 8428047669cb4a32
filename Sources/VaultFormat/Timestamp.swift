/// Times as `vaultfs.json` spells them: exactly `YYYY-MM-DDThh:mm:ssZ` (FileFormat, vaultfs.json).
package enum Timestamp {
    private static let template: [UInt8] = Array("dddd-dd-ddTdd:dd:ddZ".utf8)

    /// Whether `text` is a time that exists: a real day, hours to 23, minutes and seconds to 59.
    package static func isValid(_ text: [UInt8]) -> Bool {
        guard text.count == template.count else { return false }
        for (byte, expected) in zip(text, template) {
            let isDigit = (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
            guard expected == UInt8(ascii: "d") ? isDigit : byte == expected else { return false }
        }
        func number(_ range: Range<Int>) -> Int { text[range].reduce(0) { $0 * 10 + Int($1 - UInt8(ascii: "0")) } }
        let (year, month, day) = (number(0..<4), number(5..<7), number(8..<10))
        guard (1...12).contains(month), (1...days(in: month, of: year)).contains(day) else { return false }
        return number(11..<13) <= 23 && number(14..<16) <= 59 && number(17..<19) <= 59
    }

    private static func days(in month: Int, of year: Int) -> Int {
        switch month {
        case 2: year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28
        case 4, 6, 9, 11: 30
        default: 31
        }
    }
}
