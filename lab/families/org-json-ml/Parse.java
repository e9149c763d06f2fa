// SPDX-License-Identifier: MIT
public final class Parse {
    public static void main(String[] args) {
        Truth.role("waiter");
        Truth.say("ready");
        System.out.println(org.json.JSONML.toJSONObject("<!\"?\"-a/;>\"&"));
    }
}
