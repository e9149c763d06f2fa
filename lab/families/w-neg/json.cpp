// Parses JSON texts again and again.
#include <map>
#include <memory>
#include <string>
#include <vector>
struct Value { double number = 0; std::string text; std::vector<Value> items; std::map<std::string, Value> members; };
struct Parser { const std::string &in; size_t at = 0;
  void space() { while (at < in.size() && (in[at] == ' ' || in[at] == '\n')) at++; }
  Value value() { space(); Value v; char c = in[at];
    if (c == '{') { at++; for (space(); in[at] != '}'; space()) { std::string key = text(); space(); at++; v.members[key] = value(); space(); if (in[at] == ',') at++; space(); } at++; }
    else if (c == '[') { at++; for (space(); in[at] != ']'; space()) { v.items.push_back(value()); space(); if (in[at] == ',') at++; } at++; }
    else if (c == '"') v.text = text();
    else { size_t used; v.number = std::stod(in.substr(at, 24), &used); at += used; }
    return v; }
  std::string text() { std::string s; for (at++; in[at] != '"'; at++) { if (in[at] == '\\') at++; s += in[at]; } at++; return s; } };
volatile unsigned long parsed;
int main() { std::string text = "["; for (int i = 0; i < 3000; i++) text += (i ? "," : "") + std::string("{\"id\": ") + std::to_string(i * 37 % 1001) + ", \"name\": \"n\\\"" + std::to_string(i) + "\", \"tags\": [1.5, 2e3, \"x\"]}"; text += "]";
  for (;;) { Parser p{text}; parsed += p.value().items.size(); } }
