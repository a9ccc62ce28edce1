/* Built by installed.sh against the installed headers and library. */
#include <iswitch.h>
#include <stdio.h>

int main(void) {
  char error[200];
  iswitch_agent* agent = NULL;
  iswitch_options options = ISWITCH_OPTIONS_INIT;
  options.switch_address = "127.0.0.1:9";
  options.join_timeout_ms = 50;
  if (iswitch_agent_join(&options, &agent, error, sizeof error) != ISWITCH_ERROR_SWITCH_GONE)
    return 1;
  if (agent != NULL || error[0] == '\0') return 2;
  puts(iswitch_version());
  return 0;
}
